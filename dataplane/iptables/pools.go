package iptables

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

// emitPool makes the chains of a pool: one that chooses, one per backend.
func (s *state) emitPool(id model.PoolID) {
	before, p := s.rendered[id], s.table.Pool(id)
	if p == nil || len(p.Backends) == 0 || s.users[id] == nil {
		p = nil
	}
	s.countStrangers(before, -1)
	s.countStrangers(p, 1)
	if before != nil {
		for _, b := range before.Backends {
			if p == nil || !has(p.Backends, b) {
				s.forget("nat", backendName(id, b))
			}
		}
	}
	if p == nil {
		delete(s.rendered, id)
		s.forget("nat", poolName(id))
		return
	}
	for _, b := range p.Backends {
		if before == nil || before.Affinity != p.Affinity || !has(before.Backends, b) {
			s.emit(levelBackend, "nat", backendName(id, b), s.backendRules(p, b))
		}
	}
	s.rendered[id] = p
	s.emit(levelPool, "nat", poolName(id), s.poolRules(p))
}

// manyBackends is from how many on the rules of pools and backends have no comments,
// as with kube-proxy (largeClusterEndpointsThreshold): a comment takes 288 bytes of a
// rule (struct xt_comment_info), which are more than all the rest of it, and
// iptables-legacy-restore copies the whole table for each change.
const manyBackends = 1000

// note is the comment of a rule of which there is one for each backend.
func (s *state) note(text string) string {
	if s.large {
		return ""
	}
	return text
}

// isLarge reports whether there are more backends than rules have comments for. It is
// asked when a table is loaded: changes alone never have all chains written anew.
func (s *state) isLarge(t *model.Table) bool {
	n := 0
	for p := range t.Pools() {
		if p.ID.IPv6 == (s.family == iptables.IPv6) {
			n += len(p.Backends)
		}
	}
	return n > manyBackends
}

func has(list []model.Backend, b model.Backend) bool {
	_, found := slices.BinarySearchFunc(list, b, model.Backend.Compare)
	return found
}

// backendRules translate to one backend. A pod that reaches itself is
// masqueraded, or it would answer itself past the translation (hairpin).
// kube-proxy's rule has "-m tcp", too, which matches what "-p tcp" does.
func (s *state) backendRules(p *model.Pool, b model.Backend) []string {
	match := ""
	if p.Affinity > 0 {
		match = fmt.Sprintf("-m recent --set --name %s --mask %s --rsource", backendName(p.ID, b), s.fullMask())
	}
	return []string{
		rule{src: single(b.Addr), comment: s.note(p.ID.Name), target: markMasqChain}.String(),
		rule{proto: p.ID.Proto, comment: s.note(p.ID.Name), match: match, target: "DNAT --to-destination " + b.AddrPort().String()}.String(),
	}
}

func (s *state) fullMask() string {
	if s.addrBits == 128 {
		return strings.Repeat("ffff:", 7) + "ffff"
	}
	return "255.255.255.255"
}

// poolRules choose a backend: the one that the client had, if the pool has
// affinity, else one at random.
func (s *state) poolRules(p *model.Pool) []string {
	rules := s.directMasquerading(p.ID)
	names := make([]string, len(p.Backends))
	var weights float64
	for i, b := range p.Backends {
		names[i] = backendName(p.ID, b)
		weights += float64(b.Weight)
	}
	text := func(b model.Backend) string { return s.note(p.ID.Name + " -> " + b.AddrPort().String()) }
	if p.Affinity > 0 {
		for i, b := range p.Backends {
			match := fmt.Sprintf("-m recent --rcheck --seconds %d --reap --name %s --mask %s --rsource", seconds(p.Affinity), names[i], s.fullMask())
			rules = append(rules, rule{comment: text(b), match: match, target: names[i]}.String())
		}
	}
	for i, b := range p.Backends {
		r := rule{comment: text(b), target: names[i]}
		if i < len(p.Backends)-1 {
			r.match = "-m statistic --mode random --probability " + probability(float64(b.Weight)/weights)
		}
		weights -= float64(b.Weight)
		rules = append(rules, r.String())
	}
	return rules
}

// probability is p as the kernel keeps it, in units of 2^-31 (struct
// xt_statistic_info), and as iptables prints that: 0.33333333349.
func probability(p float64) string {
	const one = 1 << 31
	return fmt.Sprintf("%.11f", math.Round(p*one)/one)
}

// seconds is d in seconds, at least one.
func seconds(d time.Duration) int64 {
	return max(1, min(int64((d+time.Second-1)/time.Second), math.MaxUint32))
}

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
		r := rule{dst: single(f.Addr), proto: f.Proto, dport: f.Port, comment: f.Name + " " + f.Entrance.String()}
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
