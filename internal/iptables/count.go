package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// Counted is a rule with what it has counted.
type Counted struct {
	Chain, Rule    string // as iptables-save prints them, without "-A"
	Packets, Bytes uint64
}

// Count visits the rules of some chains of a table, with their counters; chains
// that aren't there have none. The cost is that of the chains with the nft
// variant, and that of the whole table with the legacy one, which the kernel
// gives out in no smaller pieces.
func (t *Tool) Count(ctx context.Context, f Family, table string, chains []string, visit func(Counted)) error {
	if len(chains) == 0 {
		return nil
	}
	if t.variant == NFT {
		return countNFT(ctx, f, table, chains, visit)
	}
	if there, err := HasLegacyTable(f, table); err != nil || !there {
		return err
	}
	program := f.Command() + "-save"
	c := countedReader{wanted: map[string]bool{}, visit: visit}
	for _, name := range chains {
		c.wanted[name] = true
	}
	stderr, err := t.run(ctx, program, nil, c.line, "-c", "-t", table)
	if err != nil {
		return t.explain(program, nil, stderr, err)
	}
	return c.err
}

func countNFT(ctx context.Context, f Family, table string, chains []string, visit func(Counted)) (err error) {
	s, err := openSocket(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, chain := range chains {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.count(table, chain, visit); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("list counters of chain %s of table %s of %s: %w", chain, table, f, err)
		}
	}
	return nil
}

// count visits the rules of a chain that are understood.
func (s *socket) count(table, chain string, visit func(Counted)) error {
	filter := nameFilter(nameFilter(nil, unix.NFTA_RULE_TABLE, table), unix.NFTA_RULE_CHAIN, chain)
	var found []Counted
	err := s.list(unix.NFT_MSG_GETRULE, filter, func() { found = found[:0] }, func(a nlmsg.Attributes) {
		if rule, ok := ruleText(s.family, a); ok {
			packets, bytes := counterOf(a)
			found = append(found, Counted{chain, rule, packets, bytes})
		}
	})
	if err != nil {
		return err
	}
	for _, c := range found {
		visit(c)
	}
	return nil
}

// counterOf reads the counter among a rule's expressions.
func counterOf(rule nlmsg.Attributes) (packets, bytes uint64) {
	for _, e := range rule.Get(unix.NFTA_RULE_EXPRESSIONS).All() {
		if string(e.Get(unix.NFTA_EXPR_NAME).Word()) == "counter" {
			data := e.Get(unix.NFTA_EXPR_DATA)
			return data.Uint64(unix.NFTA_COUNTER_PACKETS), data.Uint64(unix.NFTA_COUNTER_BYTES)
		}
	}
	return 0, 0
}

// countedReader reads what iptables-save -c prints of some chains.
type countedReader struct {
	wanted map[string]bool
	visit  func(Counted)
	err    error // the first
}

func (r *countedReader) line(text []byte) {
	counters, rule, found := bytes.Cut(text, []byte("] -A "))
	if !found || r.err != nil {
		return
	}
	chain, rule, _ := bytes.Cut(rule, []byte(" "))
	if !r.wanted[string(chain)] { // nearly all, so none is copied
		return
	}
	packets, octets, found := strings.Cut(strings.TrimPrefix(string(counters), "["), ":")
	p, err := strconv.ParseUint(packets, 10, 64)
	b, err2 := strconv.ParseUint(octets, 10, 64)
	if err := errors.Join(err, err2); err != nil || !found {
		r.err = fmt.Errorf("read counters of chain %s in %q: %w", chain, text, err)
		return
	}
	r.visit(Counted{string(chain), string(rule), p, b})
}
