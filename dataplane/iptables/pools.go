package iptables

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

// rendered is what is known of a pool's chains. There are more of these than of all
// others, so they are made again where they are asked for.
type rendered struct {
	pool *model.Pool // nil if there are none
	sum  uint64      // fingerprint of the chain that chooses
}

// emitPool makes the chains of a pool: one that chooses, one per backend.
func (s *state) emitPool(id model.PoolID) {
	before, p := s.rendered[id], s.table.Pool(id)
	if p == nil || len(p.Backends) == 0 || s.users[id] == nil {
		p = nil
	}
	s.countStrangers(before.pool, -1)
	s.countStrangers(p, 1)
	for _, b := range before.backends() {
		if p == nil || !has(p.Backends, b) {
			s.erase(chainID{"nat", backendName(id, b)}, s.backendSum(before.pool, b))
		}
	}
	if p == nil {
		if before.pool != nil {
			delete(s.rendered, id)
			s.erase(chainID{"nat", poolName(id)}, before.sum)
		}
		return
	}
	for _, b := range p.Backends {
		var was uint64
		if has(before.backends(), b) {
			if before.pool.Affinity == p.Affinity {
				continue
			}
			was = s.backendSum(before.pool, b)
		}
		s.write(levelBackend, chainID{"nat", backendName(id, b)}, s.backendRules(p, b), was)
	}
	sum := s.write(levelPool, chainID{"nat", poolName(id)}, s.poolRules(p), before.sum)
	s.rendered[id] = rendered{p, sum}
}

func (r rendered) backends() []model.Backend {
	if r.pool == nil {
		return nil
	}
	return r.pool.Backends
}

// backendSum is the fingerprint of a backend's chain.
func (s *state) backendSum(p *model.Pool, b model.Backend) uint64 {
	return fingerprint(s.backendRules(p, b))
}

// all are the fingerprints of all chains.
func (s *state) all() map[chainID]uint64 {
	all := maps.Clone(s.chains)
	for id, r := range s.rendered {
		all[chainID{"nat", poolName(id)}] = r.sum
		for _, b := range r.pool.Backends {
			all[chainID{"nat", backendName(id, b)}] = s.backendSum(r.pool, b)
		}
	}
	return all
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
