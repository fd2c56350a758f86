package nftables

import (
	"github.com/fairway-net/fairway/model"
)

// outgoingChains see the first packet of a translated connection again when it
// has its backend's address.
func outgoingChains() []chain {
	leaving := []rule{newRule(noPriority), newRule(jump("count")), newRule(masqueraded, goTo("leaving-masqueraded")),
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
		{name: "arriving", rules: []rule{newRule(noPriority), newRule(jump("count")), newRule(masqueraded, goTo("arriving-masqueraded")),
			newRule(jump("remember")), newRule(noPriority)}},
		{name: "nat-postrouting", hook: natPostrouting, rules: []rule{newRule(translated, goTo("leaving"))}},
		{name: "nat-input", hook: natInput, rules: []rule{newRule(translated, goTo("arriving"))}},
	}
}

// recallChains find the pool of a connection that was translated before; count
// also counts the connection.
func recallChains() []chain {
	var out []chain
	var count, recall []rule
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
			counting := "count-" + p.String() + f.suffix
			out = append(out, chain{name: counting, rules: []rule{
				newRule(f.only(), onlyProtocol(p), in(f.original(), f.connections)), newRule(goTo(name)),
			}})
			count = append(count, newRule(f.only(), onlyProtocol(p), goTo(counting)))
			recall = append(recall, newRule(f.only(), onlyProtocol(p), goTo(name)))
		}
	}
	return append(out, chain{name: "count", rules: count}, chain{name: "recall", rules: recall})
}
