package iptables

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
)

// contents is what one family's tables hold. There may be hundreds of thousands of
// our own rules, so those are known by what tells them apart only.
type contents struct {
	ours   map[chainID]uint64           // fingerprints
	others map[string][]*iptables.Chain // the kernel's own chains and those of others, by table
	sets   bool                         // where Services begin is of the ipvs mode
}

// read reads back the tables that this plane uses.
func (p *Plane) read(ctx context.Context, f iptables.Family) (*contents, error) {
	c := &contents{ours: map[chainID]uint64{}, others: map[string][]*iptables.Chain{}}
	for _, table := range tables {
		err := p.tool.Walk(ctx, f, table, func(chain *iptables.Chain) { c.take(table, chain) })
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", table, err)
		}
	}
	return c, nil
}

func (c *contents) take(table string, chain *iptables.Chain) {
	if !ours(chain.Name) {
		c.others[table] = append(c.others[table], chain)
		return
	}
	c.ours[chainID{table, chain.Name}] = fingerprint(chain.Rules)
	if table == "nat" && chain.Name == servicesChain {
		c.sets = overSets(chain)
	}
}

// constantChains are this plane's chains with names of their own.
var constantChains = []string{
	servicesChain, nodePortsChain, postroutingChain, markMasqChain, forwardChain, firewallChain,
	externalChain, reservedChain, invalidChain, nodeAddrsChain, localMasqChain,
}

// chainPrefixes begin the names of all others. An earlier kube-proxy's chains
// have the same names where they mean the same, and KUBE-XLB- what is KUBE-EXT-
// today.
var chainPrefixes = []string{
	poolChain, localPoolChain, entryChain, sourcesChain, backendChain, "KUBE-XLB-",
	dispatchChain, refusalChain, exemptChain, nodeAddrChain, portRangeChain, masqChain,
}

// ours reports whether a chain belongs to this plane, or to a kube-proxy in
// its place.
func ours(name string) bool {
	return slices.Contains(constantChains, name) ||
		slices.ContainsFunc(chainPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// missing lists those jumps that aren't there.
func (c *contents) missing(list []jump) []jump {
	return slices.DeleteFunc(list, func(j jump) bool {
		return slices.ContainsFunc(c.others[j.table], func(chain *iptables.Chain) bool {
			return chain.Name == j.chain && slices.Contains(chain.Rules, j.rule)
		})
	})
}

// stale lists the jumps to our chains that aren't in the list: those of another
// version or of kube-proxy, and doubles.
func (c *contents) stale(list []jump) []jump {
	seen := map[jump]bool{}
	var leading []jump
	for _, table := range tables {
		leading = append(leading, jumpsTo(table, c.others[table], ours)...)
	}
	return slices.DeleteFunc(leading, func(j jump) bool {
		wanted := slices.Contains(list, j) && !seen[j]
		seen[j] = true
		return wanted
	})
}

// keepReferred takes the deletion of chains that rules of others lead to out of
// a plan: iptables would refuse it.
func (p *Plane) keepReferred(ctx context.Context, f iptables.Family, there *contents, todo *plan) error {
	for _, name := range tables {
		if !slices.ContainsFunc(there.others[name], refers) {
			continue
		}
		table, err := p.tool.Save(ctx, f, name)
		if err != nil {
			return fmt.Errorf("read table %s: %w", name, err)
		}
		for chain := range referred(table) {
			for _, d := range []delta{todo.nat, todo.rest} {
				if id := (chainID{name, chain}); d[id].delete {
					delete(d, id)
				}
			}
		}
	}
	return nil
}

// jumpsTo lists the rules of the kernel's own chains that lead to chains that
// match.
func jumpsTo(table string, chains []*iptables.Chain, match func(chain string) bool) []jump {
	var list []jump
	for _, chain := range chains {
		if chain.Policy == "-" {
			continue
		}
		for _, r := range chain.Rules {
			if to := target(r); to != "" && match(to) {
				list = append(list, jump{table, chain.Name, r})
			}
		}
	}
	return list
}

var targetPattern = regexp.MustCompile(`(?:^| )-[jg] (\S+)`)

// target is the chain or target that a rule leads to. A comment can't pretend
// to be one: the last counts, and the target comes after all matches.
func target(rule string) string {
	all := targetPattern.FindAllStringSubmatch(rule, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}
