package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Reading a table of the nft variant by its program takes time that grows with
// the square of the number of chains: minutes at 10,000 Services. So it is read
// over netlink, and the rules are put into words here. What isn't understood
// here is asked of the program, chain by chain.

// saveNFT reads a table of the nft variant.
func (t *Tool) saveNFT(ctx context.Context, f Family, name string) (*Table, error) {
	table, unread, err := dump(f, name)
	if err != nil || len(unread) > 1+len(table.Chains)/8 || t.paths[f.Command()] == "" {
		return t.saveByProgram(ctx, f, name) // which also finds the words for what is missing
	}
	for _, chain := range unread {
		if err := t.list(ctx, f, name, chain); err != nil {
			return nil, err
		}
	}
	return table, nil
}

// list has the program tell the rules of one chain.
func (t *Tool) list(ctx context.Context, f Family, table string, chain *Chain) error {
	stdout, stderr, err := t.run(ctx, f.Command(), nil, "-w", "-t", table, "-S", chain.Name)
	if err != nil {
		return t.explain(f.Command(), nil, stderr, err)
	}
	chain.Rules = nil
	for _, line := range strings.Split(string(stdout), "\n") {
		if rule, ok := strings.CutPrefix(line+" ", "-A "+chain.Name+" "); ok {
			chain.Rules = append(chain.Rules, strings.TrimSuffix(rule, " "))
		}
	}
	return nil
}

// dump reads a table over netlink; unread are the chains with rules that aren't
// understood, whose words are missing. It asks for one chain after the other:
// the time for a list of all rules grows with the square of their number, too,
// since the kernel goes through it from the start for every message.
func dump(f Family, name string) (table *Table, unread []*Chain, err error) {
	s, err := openSocket(f)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	table, err = s.chains(name)
	if err != nil {
		return nil, nil, fmt.Errorf("list chains of table %s of %s: %w", name, f, err)
	}
	for _, chain := range table.Chains {
		understood, err := s.rules(name, chain)
		if err != nil {
			return nil, nil, fmt.Errorf("list rules of chain %s of table %s of %s: %w", chain.Name, name, f, err)
		}
		if !understood {
			unread = append(unread, chain)
		}
	}
	return table, unread, nil
}

// chains reads a table's chains without their rules.
func (s *socket) chains(name string) (*Table, error) {
	var table *Table
	begin := func() { table = &Table{Name: name} }
	err := s.list(unix.NFT_MSG_GETCHAIN, nil, begin, func(a attributes) {
		if a.text(unix.NFTA_CHAIN_TABLE) == name {
			table.add(&Chain{Name: a.text(unix.NFTA_CHAIN_NAME), Policy: policy(a)})
		}
	})
	slices.SortFunc(table.Chains, func(a, b *Chain) int { return strings.Compare(a.Name, b.Name) })
	return table, err
}

// rules reads a chain's rules.
func (s *socket) rules(table string, chain *Chain) (understood bool, err error) {
	var filter attributes
	filter = filter.add(unix.NFTA_RULE_TABLE, table).add(unix.NFTA_RULE_CHAIN, chain.Name)
	begin := func() { understood, chain.Rules = true, nil }
	err = s.list(unix.NFT_MSG_GETRULE, filter, begin, func(a attributes) {
		rule, ok := ruleText(s.family, a)
		chain.Rules = append(chain.Rules, rule)
		understood = understood && ok
	})
	return understood, err
}

// policy is what iptables-save prints behind a chain's name.
func policy(a attributes) string {
	switch {
	case a.get(unix.NFTA_CHAIN_HOOK) == nil:
		return "-"
	case a.number(unix.NFTA_CHAIN_POLICY) == netfilterDrop:
		return "DROP"
	}
	return "ACCEPT"
}
