package nftables

import (
	"github.com/google/nftables/expr"

	"github.com/fairway-net/fairway/model"
)

// What happens to connections of a frontend on their way out, as the map
// connections says: one element looked up tells that, and counts. A connection
// that isn't in the map keeps its source.
const (
	keepsSource   uint32 = 0
	masqueradeAll uint32 = 1 // whatever its origin
	masqueradeMix uint32 = 2 // unless it is from a pod
	byOrigin      uint32 = 3 // its route tells, and its pool whether to remember the client
)

// outgoing is what the map connections says of a frontend.
func (st *state) outgoing(f *model.Frontend) uint32 {
	var masqueraded [model.NumOrigins]bool
	for o, r := range f.Routes {
		if ps := st.pools[r.Pool]; ps != nil && ps.pool != nil && ps.pool.Affinity != 0 {
			return byOrigin
		}
		masqueraded[o] = r.Masquerade
	}
	switch masqueraded {
	case [model.NumOrigins]bool{}:
		return keepsSource
	case [model.NumOrigins]bool{true, true, true}:
		return masqueradeAll
	case [model.NumOrigins]bool{model.FromNode: true, model.FromOutside: true}:
		return masqueradeMix
	}
	return byOrigin
}

// outgoingChains see the first packet of a translated connection again when it
// has its backend's address: leaving when it leaves this node, arriving when a
// process of this node is the backend.
func outgoingChains() []chain {
	hairpin := eachFamily(func(f *family) rule {
		return newRule(f.only(), in(concat(f.saddr, f.daddr, l4proto, dport), f.backends), masquerade)
	})
	hairpin = append(hairpin, newRule(families[0].only(), loopback("saddr", 12), notToLo, masquerade))
	snat := eachFamily(func(f *family) rule { return newRule(f.only(), snatTo(f, f.daddr)) })
	chains := []chain{
		{name: "remember", rules: []rule{newRule(plainPool), newRule(setPriority(mapped(priority, learn))), newRule(dispatch(priority, learners))}},
		{name: "hairpin", rules: hairpin},
	}
	chains = append(chains, wayOut("leaving", []rule{newRule(masquerade)}, goTo("hairpin"))...)
	chains = append(chains, wayOut("arriving", snat, back)...)
	return append(chains,
		chain{name: "nat-postrouting", hook: natPostrouting, rules: []rule{newRule(translated, goTo("leaving"))}},
		chain{name: "nat-input", hook: natInput, rules: []rule{newRule(translated, goTo("arriving"))}})
}

// wayOut are the chains that find out whether to masquerade: a chain of this name,
// and one for each thing that it leads to. keep is for those that keep their source.
func wayOut(name string, masqueradeRules []rule, keep part) []chain {
	known, masqueraded, mixed, each := name+"-known", name+"-masqueraded", name+"-unless-pod", name+"-by-origin"
	first := append([]rule{newRule(noPriority)}, eachProtocol(func(f *family) []part {
		return []part{setPriority(mapped(f.original(), f.connections)), goTo(known)}
	})...)
	var leads []rule
	for _, lead := range []struct {
		way uint32
		to  string
	}{{masqueradeMix, mixed}, {masqueradeAll, masqueraded}, {byOrigin, each}} {
		n := native(lead.way)
		leads = append(leads, newRule(compare(priority, expr.CmpOpEq, n, formatClass(n)), goTo(lead.to)))
	}
	unlessPod := []rule{newRule(noPriority), newRule(sentHere, goTo(masqueraded))}
	for _, f := range families {
		unlessPod = append(unlessPod, newRule(f.only(), in(f.saddr, f.pods), keep))
	}
	unlessPod = append(unlessPod, newRule(fromPodIface, keep), newRule(bridgedForPods, keep), newRule(goTo(masqueraded)))
	return []chain{
		{name: masqueraded, rules: append([]rule{newRule(noPriority)}, masqueradeRules...)},
		{name: mixed, rules: unlessPod},
		{name: each, rules: []rule{newRule(jump("recall")), newRule(isMasqueraded, goTo(each+"-masqueraded")), newRule(jump("remember")), newRule(noPriority), newRule(keep)}},
		{name: each + "-masqueraded", rules: []rule{newRule(jump("remember")), newRule(goTo(masqueraded))}},
		{name: known, rules: append(leads, newRule(keep))},
		{name: name, rules: append(first, newRule(keep))},
	}
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
				recalled(model.FromNode, sentHere), recalled(model.FromPod, in(f.saddr, f.pods)),
				recalled(model.FromPod, fromPodIface), recalled(model.FromPod, bridgedForPods), recalled(model.FromOutside),
			}})
			recall = append(recall, newRule(f.only(), onlyProtocol(p), goTo(name)))
		}
	}
	return append(out, chain{name: "recall", rules: recall})
}
