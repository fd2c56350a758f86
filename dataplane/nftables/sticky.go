package nftables

import (
	"github.com/google/nftables/expr"

	"github.com/fairway-net/fairway/model"
)

// A member hash names a backend of a pool with session affinity by a number that
// a rule can work out from a translated packet. It is above all pool numbers.
const (
	memberSeed    = 0xfa1
	memberModulus = 1<<31 - 1
	memberOffset  = 1 << 31
)

// stickyChains send a client to the backend it had. If there is none, or if it
// is no backend any more, the client is forgotten and chooses anew.
func stickyChains(o model.Origin) []chain {
	var out []chain
	for _, f := range families {
		again := chain{name: "again-" + o.String() + f.suffix, rules: find(o, f)}
		again.rules = append(again.rules, newRule(f.only(), update(dynsetDelete, f.clients, concat(priority, f.saddr), priority, 0)))
		again.rules = append(again.rules, choose(o, fresh)...)
		out = append(out, again)
		for _, p := range protocols {
			way := choice(sticky, p, f, 0)
			c := chain{name: way.String() + "-" + o.String(), rules: find(o, f)}
			c.rules = append(c.rules,
				newRule(f.only(), onlyProtocol(p), setPriority(mapped(concat(priority, f.saddr), f.clients))),
				newRule(f.only(), onlyProtocol(p), dnatTo(f, mapped(priority, f.members))),
				newRule(goTo(again.name)))
			out = append(out, c)
		}
	}
	return out
}

// stickyRules lead to the sticky chains. They are no elements of choosers,
// since these chains lead there themselves.
func stickyRules(o model.Origin) []rule {
	var rules []rule
	for _, f := range families {
		for _, p := range protocols {
			way := choice(sticky, p, f, 0)
			n := native(uint32(way))
			rules = append(rules, newRule(compare(priority, expr.CmpOpEq, n, formatClass(n)), goTo(way.String()+"-"+o.String())))
		}
	}
	return rules
}
