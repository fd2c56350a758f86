package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// directMasquerading marks, in the pool's own chain, what reaches it through
// cluster IPs and is to be masqueraded.
func (s *state) directMasquerading(id model.PoolID) []string {
	var fronts []*front
	for _, f := range s.users[id] {
		if f.direct() && f.mask() != 0 {
			fronts = append(fronts, f)
		}
	}
	slices.SortFunc(fronts, func(a, b *front) int { return a.Key.Compare(b.Key) })
	var rules, own []string // own are for what this node's own processes send from pods' addresses
	for _, f := range fronts {
		r := rule{dst: single(f.Addr), proto: f.Proto, dport: f.Port, comment: f.Name + " " + f.FrontendType.String()}
		switch mask := f.mask(); {
		case mask == everybody:
			r.target = markMasqChain
		case mask == notPods && s.singlePodPrefix():
			r.src, r.target = s.podPrefixes[0], markMasqChain
			o := r
			o.match = fromNode
			if own = append(own, o.String()); s.masqueradesOwn(id) {
				own = []string{rule{src: r.src, match: fromNode, target: markMasqChain}.String()}
			}
			r.notSrc = true
		default:
			r.target = masqName(mask)
		}
		rules = append(rules, r.String())
	}
	return append(rules, own...)
}

// masqueradesOwn reports whether all that reaches the pool from this node's own
// processes is masqueraded, as nearly always. One short rule tells so then: pods'
// new connections pass it, and each match of xtables that they pass is memory of its
// own in nf_tables, which few of them find in a cache.
func (s *state) masqueradesOwn(id model.PoolID) bool {
	return !slices.ContainsFunc(s.users[id], func(f *front) bool {
		r := f.Routes[model.FromNode]
		return r.Pool == id && !r.Masquerade
	})
}

// The usual sets of origins that are masqueraded.
const (
	everybody = 1<<model.NumOrigins - 1
	notPods   = everybody &^ (1 << model.FromPod)
)

func (s *state) singlePodPrefix() bool {
	return len(s.podPrefixes) == 1 && len(s.settings.Pods.Interfaces) == 0 && s.podPrefixes[0].Bits() > 0
}

// masqName names the chain that marks packets of these origins.
func masqName(mask int) string {
	var names []string
	for o := range model.NumOrigins {
		if mask&(1<<o) != 0 {
			names = append(names, strings.ToUpper(model.Origin(o).String()))
		}
	}
	return masqChain + strings.Join(names, "-")
}

// emitMasquerading makes the constant chains of table nat.
func (s *state) emitMasquerading() {
	mark := fmt.Sprintf("%#x", s.mark)
	s.emit(levelHelper, "nat", markMasqChain, []string{fmt.Sprintf("-j MARK --set-xmark %s/%s", mark, mark)})
	s.emit(levelTop, "nat", postroutingChain, []string{
		fmt.Sprintf("-m mark ! --mark %s/%s -j RETURN", mark, mark),
		// Off again, or a tunnel's outer packet would be masqueraded too.
		fmt.Sprintf("-j MARK --set-xmark %s/0x0", mark),
		rule{comment: "kubernetes service traffic requiring SNAT", target: "MASQUERADE --random-fully"}.String(),
	})
	s.emit(levelHelper, "nat", localMasqChain, s.localMasquerading())
	for mask := 1; mask < everybody; mask++ {
		if s.masks[mask] == 0 || mask == notPods && s.singlePodPrefix() {
			s.forget("nat", masqName(mask))
			continue
		}
		var rules []string
		for _, o := range origins {
			for _, r := range s.conditions(o) {
				r.target = "RETURN"
				if mask&(1<<o) != 0 {
					r.verb, r.target = "-g", markMasqChain
				}
				rules = append(rules, r.String())
			}
		}
		s.emit(levelPool-1, "nat", masqName(mask), rules)
	}
}

// localMasquerading is KUBE-POSTROUTING for endpoints that are this node
// itself, which packets reach without leaving: their source becomes the very
// address they are sent to.
func (s *state) localMasquerading() []string {
	mark := fmt.Sprintf("%#x", s.mark)
	rules := []string{
		fmt.Sprintf("-m mark ! --mark %s/%s -j RETURN", mark, mark),
		fmt.Sprintf("-j MARK --set-xmark %s/0x0", mark),
	}
	for _, a := range s.settings.NodeAddrs {
		if s.ours(a) && !a.IsLoopback() {
			rules = append(rules, rule{dst: single(a), target: fmt.Sprintf("SNAT --to-source %s --random-fully", a)}.String())
		}
	}
	return rules
}
