package nftables

import (
	"fmt"
	"strings"
	"sync"

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

// entrance reports whether packets pass the hook before they are routed.
func (h *hook) entrance() bool {
	return h.number == unix.NF_INET_PRE_ROUTING || h.number == unix.NF_INET_LOCAL_OUT
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
// comes after those it leads to. They are made when they are first asked for: every command
// would make them as it starts.
var fixedChains = sync.OnceValue(makeFixedChains)

func makeFixedChains() []chain {
	var c []chain
	add := func(name string, h *hook, rules ...rule) { c = append(c, chain{name: name, hook: h, rules: rules}) }

	c = append(c, refusals()...)
	add("admit", nil, append(eachFamily(func(f *family) rule {
		return newRule(f.only(), in(concat(f.destination(), f.saddr), f.allowed), back)
	}), newRule(goTo("discard")))...)
	for o := range model.Origin(model.NumOrigins) {
		c = append(c, routeChains(o)...)
		c = append(c, stickyChains(o)...)
		for _, f := range families {
			for _, p := range protocols {
				c = append(c, chooserFor(o, p, f, random, 1))
			}
		}
	}
	add("services", nil, originRules()...)
	add("nat-prerouting", natPrerouting, newRule(goTo("services")))
	add("nat-output", natOutput, newRule(goTo("services")))
	c = append(c, recallChains()...)
	c = append(c, countingChains()...)
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
	refuse := chain{name: "refuse", rules: append(countRefused(), newRule(onlyProtocol(model.TCP), counted, resetTCP), newRule(counted, unreachable))}
	discard := chain{name: "discard", rules: append(countRefused(), newRule(counted, drop))}
	for o := range choosers {
		refuse.entries = append(refuse.entries, element{set: choosers[o], key: native(uint32(refused)), verdict: verdict{expr.VerdictGoto, refuse.name}})
		discard.entries = append(discard.entries, element{set: choosers[o], key: native(uint32(discarded)), verdict: verdict{expr.VerdictGoto, discard.name}})
	}
	unserved := chain{name: "unserved", rules: eachFamily(func(f *family) rule {
		return newRule(f.only(), in(f.daddr, f.reserved), notIn(f.daddr, f.exempt), goTo("refuse"))
	})}
	return []chain{refuse, discard, unserved}
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
		{name: balance, rules: append([]rule{newRule(isRestricted, jump("admit")), newRule(plainPool)}, choose(o, pools, stickyRules(o)...)...)},
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
