package iptables

import (
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

// plan is what there is to do for one family, in steps that come into force
// one after the other: what is refused from now on, what is translated, and
// what is refused no more. In this order no packet leaves untranslated because
// it is between two of them.
type plan struct {
	refusals delta // table filter
	nat      delta
	rest     delta  // table filter
	jumps    []jump // to be put into the kernel's chains
	stale    []jump // to be taken out of them
	// We don't translate yet, so another mode may be in force: what it leads to
	// backends, or serves itself, would look untranslated to our refusals.
	natFirst bool
}

func (p *plan) empty() bool {
	return len(p.refusals)+len(p.nat)+len(p.rest)+len(p.jumps)+len(p.stale) == 0
}

// change brings the state to the next table, whose settings are the same, and
// tells what that means for the chains. The cost is that of the change.
func (s *state) change(want *model.Table, changes *model.Changes) *plan {
	s.table = want
	old := map[model.Key]*front{}
	for _, c := range changes.Frontends {
		if f := s.fronts[c.Key()]; f != nil {
			old[c.Key()] = f
		}
	}
	for _, c := range changes.Pools {
		if c.ID().IPv6 != (s.family == iptables.IPv6) {
			continue
		}
		s.touchedPools[c.ID()] = true
		if c.Old != nil && c.New != nil && verdictOf(c.Old) == verdictOf(c.New) {
			continue
		}
		for _, f := range s.users[c.ID()] {
			old[f.Key] = f
		}
	}
	for _, f := range old {
		s.removeFront(f)
	}
	for _, c := range changes.Frontends {
		if c.New != nil && s.wants(c.New) {
			s.addFront(c.New)
		}
	}
	for key := range old {
		if f := want.Frontend(key); f != nil && s.fronts[key] == nil {
			s.addFront(f)
		}
	}
	for key := range old {
		if f := s.fronts[key]; f != nil {
			s.refuse(f)
		}
	}
	for _, c := range changes.Frontends {
		if f := s.fronts[c.Key()]; f != nil && old[c.Key()] == nil {
			s.refuse(f)
		}
	}
	s.flushNAT()
	s.flushFilter()
	p := &plan{nat: s.step(), refusals: delta{}}
	for id, c := range p.nat {
		if id.table == "filter" {
			p.refusals[id] = c
			delete(p.nat, id)
		}
	}
	for _, f := range old {
		s.unrefuse(f)
	}
	s.flushFilter()
	s.forgetLate()
	p.rest = s.step()
	return p
}

// replace fills an empty state and plans the way to it from chains with these
// fingerprints, of which it makes use.
func (s *state) replace(want *model.Table, there map[chainID]uint64) *plan {
	s.there = there
	s.load(want)
	s.there = nil
	p := &plan{refusals: delta{}, nat: delta{}, rest: delta{}}
	for id, c := range s.step() {
		switch {
		case c.delete: // it was for a moment only
			if _, found := there[id]; found {
				there[id] = ^uint64(asked)
			}
		case id.table == "filter":
			p.refusals[id] = c
		default:
			p.nat[id] = c
		}
	}
	for id, sum := range there {
		switch {
		case sum == asked:
		case id.table == "filter":
			p.rest[id] = change{delete: true}
		default:
			p.nat[id] = change{delete: true}
		}
	}
	return p
}
