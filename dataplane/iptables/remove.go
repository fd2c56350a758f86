package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Remove takes our chains and the jumps to them out of both variants, and with
// them what a kube-proxy in iptables mode left. The kubelet's own chains stay
// (KUBE-KUBELET-CANARY, KUBE-FIREWALL, KUBE-MARK-DROP), and so does any chain
// of ours that rules of others lead to. No connection passes through this process.
func (p *Plane) Remove(ctx context.Context, _ kernel.Removal) error {
	p.applied, p.states = nil, map[iptables.Family]*state{}
	var problems []error
	for _, v := range iptables.Variants() {
		tool, err := iptables.Open(ctx, v)
		if kernel.IsAbsent(err) {
			continue
		}
		if err == nil {
			err = removeAll(ctx, tool)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("remove rules of iptables (%s): %w", v, err))
		}
	}
	if err := p.localnet.Keep(false, true); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func removeAll(ctx context.Context, tool *iptables.Tool) error {
	for _, f := range iptables.Families() {
		// What refuses goes before what translates: packets that another plane
		// is to serve from now on must not be refused in between.
		for _, name := range []string{"filter", "nat", "mangle"} {
			table, err := tool.Save(ctx, f, name)
			if kernel.IsAbsent(err) {
				continue // what can't be read can't be there
			}
			if err != nil {
				return err
			}
			entrances, rest := removal(table, tool.Variant())
			if entrances != nil {
				if err := tool.Restore(ctx, f, entrances); err != nil {
					return err
				}
				kernel.Quiesce()
			}
			for _, input := range rest {
				if err := tool.Restore(ctx, f, input); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// canaryChain is made by kube-proxy in several tables, to notice when they are
// flushed.
const canaryChain = "KUBE-PROXY-CANARY"

// removal is the input that takes all that is ours out of a table: first where
// packets enter our translations, and when those that have entered are through,
// which may have to be masqueraded yet, the rest.
func removal(table *iptables.Table, v iptables.Variant) (entrances []byte, rest [][]byte) {
	stays := referred(table)
	removable := func(chain string) bool {
		return (ours(chain) || chain == canaryChain) && !stays[chain] && !overSets(table.Chain(chain))
	}
	gone := delta{}
	for _, chain := range table.Chains {
		if removable(chain.Name) {
			gone[chainID{table.Name, chain.Name}] = change{delete: true}
		}
	}
	enter, p := &plan{}, &plan{}
	for _, j := range jumpsTo(table.Name, table.Chains, removable) {
		if j.table == "nat" && (j.chain == "PREROUTING" || j.chain == "OUTPUT") {
			enter.stale = append(enter.stale, j)
		} else {
			p.stale = append(p.stale, j)
		}
	}
	if len(enter.stale) > 0 {
		var in iptables.Input
		enter.lead(in.Block(table.Name), table.Name)
		entrances = in.Bytes()
	}
	if v == iptables.NFT {
		return entrances, gone.pieces(table.Name, p, pieceOf(v))
	}
	var in iptables.Input
	b := in.Block(table.Name)
	p.lead(b, table.Name)
	gone.write(b, gone.sorted())
	if in.Empty() {
		return entrances, nil
	}
	return entrances, [][]byte{in.Bytes()}
}

// overSets reports whether a chain is of the ipvs mode, this project's or
// kube-proxy's, which has chains of the same names, over ipsets.
func overSets(chain *iptables.Chain) bool {
	return chain != nil && slices.ContainsFunc(chain.Rules, func(rule string) bool {
		return strings.Contains(rule, "--match-set KUBE-")
	})
}

// referred are the chains that rules of others lead to, at once or by way of
// such chains.
func referred(table *iptables.Table) map[string]bool {
	stays := map[string]bool{}
	var follow func(chain *iptables.Chain)
	follow = func(chain *iptables.Chain) {
		for _, r := range chain.Rules {
			to := target(r)
			if next := table.Chain(to); next != nil && ours(to) && !stays[to] {
				stays[to] = true
				follow(next)
			}
		}
	}
	for _, chain := range table.Chains {
		if refers(chain) {
			follow(chain)
		}
	}
	return stays
}

// refers reports whether a chain of others leads to one of ours. The kernel's own do,
// but those rules are ours.
func refers(chain *iptables.Chain) bool {
	return chain.Policy == "-" && !ours(chain.Name) && !strings.HasPrefix(chain.Name, canaryChain) &&
		slices.ContainsFunc(chain.Rules, func(rule string) bool { return ours(target(rule)) })
}
