package nftables

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// chain is a chain and its rules.
type chain struct {
	name  string
	hook  *hook // nil unless packets enter the table here
	rules []rule
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
	add := func(name string, h *hook, rules ...rule) { c = append(c, chain{name, h, rules}) }

	add("refuse", nil, newRule(onlyProtocol(model.TCP), counted, resetTCP), newRule(counted, unreachable))
	add("unserved", nil, eachFamily(func(f *family) rule {
		return newRule(f.only(), in(f.daddr, f.reserved), notIn(f.daddr, f.exempt), goTo("refuse"))
	})...)
	add("balance", nil, newRule(plainPool), newRule(dispatch(priority, pools)), newRule(counted, drop))
	c = append(c, choosers("random", 1)...)
	c = append(c, routeChains("route", "balance", "unserved")...)
	c = append(c, stickyChains()...)
	services := eachFamily(func(f *family) rule {
		return newRule(f.only(), in(f.destination(), f.restricted),
			notIn(concat(f.destination(), f.saddr), f.allowed), counted, drop)
	})
	add("services", nil, append(services, originRules("route", goTo)...)...)
	add("nat-prerouting", natPrerouting, newRule(goTo("services")))
	add("nat-output", natOutput, newRule(goTo("services")))

	c = append(c, recallChains()...)
	add("leaving-masqueraded", nil, newRule(plainPool), newRule(dispatch(priority, learn)), newRule(noPriority, masquerade))
	out := []rule{newRule(noPriority), newRule(jump("recall")), newRule(masqueraded, goTo("leaving-masqueraded")),
		newRule(dispatch(priority, learn)), newRule(noPriority)}
	out = append(out, eachFamily(func(f *family) rule {
		return newRule(f.only(), in(concat(f.saddr, f.daddr, l4proto, dport), f.backends), masquerade)
	})...)
	out = append(out, newRule(families[0].only(), loopback("saddr", 12), notToLo, masquerade))
	add("leaving", nil, out...)
	add("arriving", nil, newRule(noPriority), newRule(jump("recall")), newRule(plainPool),
		newRule(dispatch(priority, learn)), newRule(noPriority))
	add("nat-postrouting", natPostrouting, newRule(translated, goTo("leaving")))
	add("nat-input", natInput, newRule(translated, goTo("arriving")))

	add("invalid", nil, invalidRules()...)
	add("filter-prerouting", filterPrerouting,
		newRule(notFromLo, families[0].only(), loopback("daddr", 16), counted, drop),
		newRule(invalidState, goTo("invalid")))
	add("filter-output", filterOutput, newRule(invalidState, goTo("invalid")))
	return c
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
func originRules(prefix string, lead func(string) part) []rule {
	rules := []rule{newRule(fromThisNode, lead(prefix+"-node"))}
	for _, f := range families {
		rules = append(rules, newRule(f.only(), in(f.saddr, f.pods), lead(prefix+"-pod")))
	}
	return append(rules, newRule(fromPodIface, lead(prefix+"-pod")), newRule(lead(prefix+"-outside")))
}

// routeChains find the pool that packets of each origin go to.
func routeChains(prefix, found, missed string) []chain {
	var out []chain
	for o := range model.Origin(model.NumOrigins) {
		rules := eachFamily(func(f *family) rule {
			return newRule(f.only(), setPriority(mapped(f.destination(), f.from[o])), goTo(found))
		})
		if missed != "" {
			rules = append(rules, newRule(goTo(missed)))
		}
		out = append(out, chain{prefix + "-" + o.String(), nil, rules})
	}
	return out
}

// recallChains find the pool of a connection that was translated before.
func recallChains() []chain {
	var out []chain
	var recall []rule
	for _, f := range families {
		for _, p := range protocols {
			name := "recall-" + p.String() + f.suffix
			find := func(o model.Origin, from ...part) rule {
				parts := append([]part{f.only(), onlyProtocol(p)}, from...)
				return newRule(append(parts, setPriority(mapped(f.original(), f.from[o])), back)...)
			}
			out = append(out, chain{name, nil, []rule{
				find(model.FromNode, fromThisNode), find(model.FromPod, in(f.saddr, f.pods)),
				find(model.FromPod, fromPodIface), find(model.FromOutside),
			}})
			recall = append(recall, newRule(f.only(), onlyProtocol(p), goTo(name)))
		}
	}
	return append(out, chain{"recall", nil, recall})
}

// memberHash names a backend of a pool with session affinity by a number that
// a rule can work out from a translated packet. It is above all pool numbers.
const (
	memberSeed    = 0xfa1
	memberModulus = 1<<31 - 1
	memberOffset  = 1 << 31
)

// stickyChains send a client to the backend it had. If that is no backend any
// more, the client is forgotten and chooses anew.
func stickyChains() []chain {
	out := []chain{{"forget", nil, append(append([]rule{newRule(plainPool)}, eachFamily(func(f *family) rule {
		return newRule(f.only(), update(dynsetDelete, f.clients, concat(priority, f.saddr), priority, 0))
	})...), newRule(dispatch(priority, fresh)), newRule(counted, drop))}}
	out = append(out, routeChains("again", "forget", "")...)
	out = append(out, chain{"again", nil, originRules("again", goTo)})
	for _, f := range families {
		for _, p := range protocols {
			out = append(out, chain{stickyChain(p, f), nil, []rule{
				newRule(f.only(), onlyProtocol(p), setPriority(mapped(concat(priority, f.saddr), f.clients))),
				newRule(f.only(), onlyProtocol(p), dnatTo(f, mapped(priority, f.members))),
				newRule(dispatch(priority, fresh)),
				newRule(goTo("again")),
			}})
		}
	}
	return out
}

func stickyChain(p model.Protocol, f *family) string { return p.String() + f.suffix + "-sticky" }

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

// chooserName names the chain that chooses among so many slots.
func chooserName(p model.Protocol, f *family, way string, slots int) string {
	return fmt.Sprintf("%s%s-%s-%d", p, f.suffix, way, slots)
}

// choosers are the chains that choose one of so many slots, for each protocol
// and family.
func choosers(way string, slots int) []chain {
	var out []chain
	for _, f := range families {
		for _, p := range protocols {
			out = append(out, chooser(p, f, way, slots))
		}
	}
	return out
}

// chooser chooses one of so many slots. While a transaction makes a pool
// smaller, a packet may find its number of slots just before and the slot just
// after; it takes the first slot then.
func chooser(p model.Protocol, f *family, way string, slots int) chain {
	var index value
	switch way {
	case "random":
		index = random(uint32(slots))
	case "source":
		index = hashed(f.saddr, uint32(slots), memberSeed, 0)
	case "destination":
		index = hashed(f.daddr, uint32(slots), memberSeed, 0)
	}
	rules := []rule{newRule(f.only(), onlyProtocol(p), dnatTo(f, mapped(concat(priority, index), f.slots)))}
	if way == "random" && slots == 1 {
		rules = append(rules, newRule(counted, drop))
	} else {
		rules = append(rules, newRule(goTo(chooserName(p, f, "random", 1))))
	}
	return chain{chooserName(p, f, way, slots), nil, rules}
}

// learner remembers clients for so long.
func learner(f *family, timeout time.Duration) chain {
	member := hashed(concat(priority, f.daddr, dport), memberModulus, memberSeed, memberOffset)
	return chain{learnerName(f, timeout), nil, []rule{newRule(f.only(),
		update(unix.NFT_DYNSET_OP_UPDATE, f.clients, concat(priority, f.saddr), member, timeout))}}
}

func learnerName(f *family, timeout time.Duration) string {
	return fmt.Sprintf("learn%s-%ds", f.suffix, int(timeout/time.Second))
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
