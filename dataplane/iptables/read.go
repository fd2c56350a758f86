package iptables

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
)

// contents is what one family's tables hold.
type contents struct {
	tables map[string]*iptables.Table // by name
}

// read reads back the tables that this plane uses.
func (p *Plane) read(ctx context.Context, f iptables.Family) (*contents, error) {
	c := &contents{tables: map[string]*iptables.Table{}}
	for _, name := range []string{"nat", "filter"} {
		table, err := p.tool.Save(ctx, f, name)
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", name, err)
		}
		c.tables[name] = table
	}
	return c, nil
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

// fingerprints tells this plane's chains apart by their content.
func (c *contents) fingerprints() map[chainID]uint64 {
	there := map[chainID]uint64{}
	for name, table := range c.tables {
		for _, chain := range table.Chains {
			if ours(chain.Name) {
				there[chainID{name, chain.Name}] = fingerprint(chain.Rules)
			}
		}
	}
	return there
}

// missing lists those jumps that aren't there.
func (c *contents) missing(list []jump) []jump {
	return slices.DeleteFunc(list, func(j jump) bool {
		chain := c.tables[j.table].Chain(j.chain)
		return chain != nil && slices.Contains(chain.Rules, j.rule)
	})
}

// stale lists the jumps to our chains that aren't in the list: those of another
// version or of kube-proxy, and doubles.
func (c *contents) stale(list []jump) []jump {
	seen := map[jump]bool{}
	return slices.DeleteFunc(c.jumpsTo(ours), func(j jump) bool {
		wanted := slices.Contains(list, j) && !seen[j]
		seen[j] = true
		return wanted
	})
}

// keepReferred takes the deletion of chains that rules of others lead to out of
// a plan: iptables would refuse it.
func (c *contents) keepReferred(p *plan) {
	for name, table := range c.tables {
		for chain := range referred(table) {
			for _, d := range []delta{p.nat, p.rest} {
				if id := (chainID{name, chain}); d[id].delete {
					delete(d, id)
				}
			}
		}
	}
}

// jumpsTo lists the rules of the kernel's own chains that lead to chains that
// match.
func (c *contents) jumpsTo(match func(chain string) bool) []jump {
	var list []jump
	for _, name := range []string{"nat", "filter", "mangle", "raw"} {
		table := c.tables[name]
		if table == nil {
			continue
		}
		for _, chain := range table.Chains {
			if chain.Policy == "-" {
				continue
			}
			for _, r := range chain.Rules {
				if to := target(r); to != "" && match(to) {
					list = append(list, jump{name, chain.Name, r})
				}
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
