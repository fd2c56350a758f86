package nftables

import (
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// chain is a chain and its rules.
type chain struct {
	name    string
	hook    *hook // nil unless packets enter the table here
	rules   []rule
	entries []element // of the verdict maps that lead here
}

// hook is where a base chain hangs.
type hook struct {
	typ      string
	name     string
	number   uint32
	priority int32
}

// The hooks. Packets that conntrack can't place are dealt with before the
// translations of others (dstnat) look at them.
var (
	filterPrerouting = &hook{"filter", "prerouting", unix.NF_INET_PRE_ROUTING, -110}
	filterOutput     = &hook{"filter", "output", unix.NF_INET_LOCAL_OUT, -110}
	natPrerouting    = &hook{"nat", "prerouting", unix.NF_INET_PRE_ROUTING, -100}
	natOutput        = &hook{"nat", "output", unix.NF_INET_LOCAL_OUT, -100}
	natPostrouting   = &hook{"nat", "postrouting", unix.NF_INET_POST_ROUTING, 100}
	natInput         = &hook{"nat", "input", unix.NF_INET_LOCAL_IN, 100}
)

// fixedChains are the chains that are always there, in an order in which each
// comes after those it leads to.
var fixedChains = makeFixedChains()

func makeFixedChains() []chain {
	var c []chain
	add := func(name string, h *hook, rules ...rule) { c = append(c, chain{name: name, hook: h, rules: rules}) }

	c = append(c, refusals()...)
	for o := range model.Origin(model.NumOrigins) {
		c = append(c, routeChains(o)...)
		c = append(c, stickyChains(o)...)
		for _, f := range families {
			for _, p := range protocols {
				c = append(c, chooserFor(o, p, f, random, 1))
			}
		}
	}
	services := eachFamily(func(f *family) rule {
		return newRule(f.only(), in(f.destination(), f.restricted),
			notIn(concat(f.destination(), f.saddr), f.allowed), counted, drop)
	})
	add("services", nil, append(services, originRules()...)...)
	add("nat-prerouting", natPrerouting, newRule(goTo("services")))
	add("nat-output", natOutput, newRule(goTo("services")))
	c = append(c, recallChains()...)
	c = append(c, outgoingChains()...)
	add("invalid", nil, invalidRules()...)
	add("filter-prerouting", filterPrerouting,
		newRule(notFromLo, families[0].only(), loopback("daddr", 16), counted, drop),
		newRule(invalidState, goTo("invalid")))
	add("filter-output", filterOutput, newRule(invalidState, goTo("invalid")))
	return c
}

// refusals are the ends that packets come to which no backend gets.
func refusals() []chain {
	refuse := chain{name: "refuse", rules: []rule{newRule(onlyProtocol(model.TCP), counted, resetTCP), newRule(counted, unreachable)}}
	discard := chain{name: "discard", rules: []rule{newRule(counted, drop)}}
	for o := range choosers {
		refuse.entries = append(refuse.entries, element{set: choosers[o], key: native(uint32(refused)), verdict: verdict{expr.VerdictGoto, refuse.name}})
		discard.entries = append(discard.entries, element{set: choosers[o], key: native(uint32(discarded)), verdict: verdict{expr.VerdictGoto, discard.name}})
	}
	unserved := chain{name: "unserved", rules: eachFamily(func(f *family) rule {
		return newRule(f.only(), in(f.daddr, f.reserved), notIn(f.daddr, f.exempt), goTo("refuse"))
	})}
	return []chain{refuse, discard, unserved}
}

// outgoingChains see the first packet of a translated connection again when it
// has its backend's address.
func outgoingChains() []chain {
	leaving := []rule{newRule(noPriority), newRule(jump("recall")), newRule(masqueraded, goTo("leaving-masqueraded")),
		newRule(jump("remember")), newRule(noPriority)}
	leaving = append(leaving, eachFamily(func(f *family) rule {
		return newRule(f.only(), in(concat(f.saddr, f.daddr, l4proto, dport), f.backends), masquerade)
	})...)
	leaving = append(leaving, newRule(families[0].only(), loopback("saddr", 12), notToLo, masquerade))
	return []chain{
		{name: "remember", rules: []rule{newRule(plainPool), newRule(setPriority(mapped(priority, learn))), newRule(dispatch(priority, learners))}},
		{name: "leaving-masqueraded", rules: []rule{newRule(jump("remember")), newRule(noPriority, masquerade)}},
		{name: "leaving", rules: leaving},
		{name: "arriving-masqueraded", rules: append([]rule{newRule(jump("remember")), newRule(noPriority)},
			eachFamily(func(f *family) rule { return newRule(f.only(), snatTo(f, f.daddr)) })...)},
		{name: "arriving", rules: []rule{newRule(noPriority), newRule(jump("recall")), newRule(masqueraded, goTo("arriving-masqueraded")),
			newRule(jump("remember")), newRule(noPriority)}},
		{name: "nat-postrouting", hook: natPostrouting, rules: []rule{newRule(translated, goTo("leaving"))}},
		{name: "nat-input", hook: natInput, rules: []rule{newRule(translated, goTo("arriving"))}},
	}
}

func eachFamily(rules ...func(*family) rule) []rule {
	var out []rule
	for _, f := range families {
		for _, r := range rules {
			out = append(out, r(f))
		}
	}
	return out
}

// originRules lead to the chain for a packet's origin.
func originRules() []rule {
	rules := []rule{newRule(fromThisNode, goTo("route-node"))}
	for _, f := range families {
		rules = append(rules, newRule(f.only(), in(f.saddr, f.pods), goTo("route-pod")))
	}
	return append(rules, newRule(fromPodIface, goTo("route-pod")), newRule(goTo("route-outside")))
}

// routeChains find the pool that packets of an origin go to, and how it
// chooses.
func routeChains(o model.Origin) []chain {
	balance := "balance-" + o.String()
	route := eachFamily(func(f *family) rule {
		return newRule(f.only(), setPriority(mapped(f.destination(), f.from[o])), goTo(balance))
	})
	return []chain{
		{name: balance, rules: append([]rule{newRule(plainPool)}, choose(o, pools, stickyRules(o)...)...)},
		{name: "route-" + o.String(), rules: append(route, newRule(goTo("unserved")))},
	}
}

// choose turns a pool's number into how it chooses, and does that. The chain
// that does it looks the pool up once more: rules have one place only to hand
// a number on.
func choose(o model.Origin, by *set, more ...rule) []rule {
	rules := []rule{newRule(setPriority(mapped(priority, by))), newRule(dispatch(priority, choosers[o]))}
	return append(append(rules, more...), newRule(counted, drop))
}

// find puts the number of the packet's pool into its priority.
func find(o model.Origin, f *family) []rule {
	return []rule{newRule(f.only(), setPriority(mapped(f.destination(), f.from[o]))), newRule(plainPool)}
}

// recallChains find the pool of a connection that was translated before.
func recallChains() []chain {
	var out []chain
	var recall []rule
	for _, f := range families {
		for _, p := range protocols {
			name := "recall-" + p.String() + f.suffix
			recalled := func(o model.Origin, from ...part) rule {
				parts := append([]part{f.only(), onlyProtocol(p)}, from...)
				return newRule(append(parts, setPriority(mapped(f.original(), f.from[o])), back)...)
			}
			out = append(out, chain{name: name, rules: []rule{
				recalled(model.FromNode, fromThisNode), recalled(model.FromPod, in(f.saddr, f.pods)),
				recalled(model.FromPod, fromPodIface), recalled(model.FromOutside),
			}})
			recall = append(recall, newRule(f.only(), onlyProtocol(p), goTo(name)))
		}
	}
	return append(out, chain{name: "recall", rules: recall})
}

// memberHash names a backend of a pool with session affinity by a number that
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

// invalidRules drop what would reset a client's connection: answers of backends
// without their translation, and packets to frontends that would go past it.
func invalidRules() []rule {
	return eachFamily(
		func(f *family) rule {
			return newRule(f.only(), in(concat(f.saddr, f.saddr, l4proto, sport), f.backends), counted, drop)
		},
		func(f *family) rule {
			return newRule(f.only(), setPriority(mapped(f.destination(), f.from[model.FromOutside])), counted, drop)
		},
		func(f *family) rule {
			return newRule(f.only(), in(f.daddr, f.reserved), notIn(f.daddr, f.exempt), counted, drop)
		})
}

// body is the chain in nft's language, a line each.
func (c *chain) body() []string {
	var lines []string
	if c.hook != nil {
		lines = append(lines, fmt.Sprintf("type %s hook %s priority %d; policy accept;", c.hook.typ, c.hook.name, c.hook.priority))
	}
	for _, r := range c.rules {
		lines = append(lines, r.text)
	}
	return lines
}

func (c *chain) text() string { return strings.Join(c.body(), "\n") }
