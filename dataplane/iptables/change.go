package iptables

import (
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

// plan is what there is to do for one family, in three steps: add refusals (table
// filter), change translations (table nat), delete refusals. A packet that comes between two
// steps is refused or translated; in another order it could leave untranslated.
type plan struct {
	refusals delta // the first step
	nat      delta
	rest     delta  // the last step, in table filter
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
// plans how the chains follow. It looks only at what changed.
func (s *state) change(want *model.Table, changes *model.Changes) *plan {
	s.table = want
	// The frontends of the state that are made anew: those that changed, and those of a pool
	// whose verdict changed.
	replaced := map[model.Key]*front{}
	for _, c := range changes.Frontends {
		if f := s.fronts[c.Key()]; f != nil {
			replaced[c.Key()] = f
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
			replaced[f.Key] = f
		}
	}
	for _, f := range replaced {
		s.removeFront(f)
	}
	for _, c := range changes.Frontends {
		if c.New != nil && s.wants(c.New) {
			s.addFront(c.New)
		}
	}
	for key := range replaced {
		if f := want.Frontend(key); f != nil && s.fronts[key] == nil {
			s.addFront(f)
		}
	}
	// Refusals are added now, and deleted in the last step only.
	for key := range replaced {
		if f := s.fronts[key]; f != nil {
			s.refuse(f)
		}
	}
	for _, c := range changes.Frontends {
		if f := s.fronts[c.Key()]; f != nil && replaced[c.Key()] == nil {
			s.refuse(f)
		}
	}
	s.flushNAT()
	s.flushFilter()
	p := &plan{nat: s.step(), refusals: delta{}} // the first two steps, taken apart by table
	for id, c := range p.nat {
		if id.table == "filter" {
			p.refusals[id] = c
			delete(p.nat, id)
		}
	}
	// The last step.
	for _, f := range replaced {
		s.unrefuse(f)
	}
	s.flushFilter()
	s.forgetLate()
	p.rest = s.step()
	return p
}

// replace fills an empty state and plans how the kernel gets there. The kernel has the
// chains of there, by fingerprint: those whose rules are right already are kept.
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
