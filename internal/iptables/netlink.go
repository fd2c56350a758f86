package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// Reading a table of the nft variant by its program takes time that grows with
// the square of the number of chains: minutes at 10,000 Services. So it is read
// over netlink, and the rules are put into words here. What isn't understood
// here is asked of the program, chain by chain.

// walkNFT reads a table of the nft variant.
func (t *Tool) walkNFT(ctx context.Context, f Family, name string, visit func(*Chain)) error {
	seen := map[string]bool{}
	unread, err := walk(ctx, f, name, func(c *Chain) {
		seen[c.Name] = true
		visit(c)
	})
	if err != nil || t.paths[f.Command()] == "" && len(unread) > 0 {
		return t.walkByProgram(ctx, f, name, func(c *Chain) { // which also finds the words for what is missing
			if !seen[c.Name] {
				visit(c)
			}
		})
	}
	for _, chain := range unread {
		if err := t.list(ctx, f, name, chain); err != nil {
			return err
		}
		visit(chain)
	}
	return nil
}

// list has the program tell the rules of one chain.
func (t *Tool) list(ctx context.Context, f Family, table string, chain *Chain) error {
	chain.Rules = nil
	stderr, err := t.run(ctx, f.Command(), nil, func(line []byte) {
		if rule, ok := strings.CutPrefix(string(line)+" ", "-A "+chain.Name+" "); ok {
			chain.Rules = append(chain.Rules, strings.TrimSuffix(rule, " "))
		}
	}, "-w", t.lockWait, "-t", table, "-S", chain.Name)
	if err != nil {
		return t.explain(f.Command(), nil, stderr, err)
	}
	return nil
}

var errOthers = errors.New("many rules are others'")

// walk reads a table over netlink; unread are the chains with rules that aren't
// understood, whose words are missing; if there are many, it fails, since the
// program does better. It asks for one chain after the other: the time for a list of all
// rules grows with the square of their number, too, since the kernel goes through
// it from the start for every message.
func walk(ctx context.Context, f Family, name string, visit func(*Chain)) (unread []*Chain, err error) {
	s, err := openSocket(f)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	chains, err := s.chains(name)
	if err != nil {
		return nil, fmt.Errorf("list chains of table %s of %s: %w", name, f, err)
	}
	for i, chain := range chains {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		understood, err := s.rules(name, chain)
		switch {
		case err != nil:
			return nil, fmt.Errorf("list rules of chain %s of table %s of %s: %w", chain.Name, name, f, err)
		case understood:
			visit(chain)
		case len(unread) > len(chains)/8:
			return nil, errOthers
		default:
			unread = append(unread, chain)
		}
		chains[i] = nil // visit's, and perhaps garbage by now
	}
	return unread, nil
}

// chains reads a table's chains without their rules.
func (s *socket) chains(table string) (chains []*Chain, err error) {
	err = s.list(unix.NFT_MSG_GETCHAIN, nil, func() { chains = nil }, func(a nlmsg.Attributes) {
		if a.String(unix.NFTA_CHAIN_TABLE) == table {
			chains = append(chains, &Chain{Name: a.String(unix.NFTA_CHAIN_NAME), Policy: policy(a)})
		}
	})
	return chains, err
}

// rules reads a chain's rules.
func (s *socket) rules(table string, chain *Chain) (understood bool, err error) {
	filter := nameFilter(nameFilter(nil, unix.NFTA_RULE_TABLE, table), unix.NFTA_RULE_CHAIN, chain.Name)
	begin := func() { understood, chain.Rules = true, nil }
	err = s.list(unix.NFT_MSG_GETRULE, filter, begin, func(a nlmsg.Attributes) {
		rule, ok := ruleText(s.family, a)
		chain.Rules = append(chain.Rules, rule)
		understood = understood && ok
	})
	return understood, err
}

// policy is what iptables-save prints behind a chain's name.
func policy(a nlmsg.Attributes) string {
	switch {
	case a.Get(unix.NFTA_CHAIN_HOOK) == nil:
		return "-"
	case a.Uint32(unix.NFTA_CHAIN_POLICY) == netfilterDrop:
		return "DROP"
	}
	return "ACCEPT"
}
