package core

import (
	"net/netip"
	"slices"
	"time"
)

// Adverts get lost where a node is too busy to read them, by hundreds where many addresses
// change at once. Their sequence tells. What a lost advert said comes again: changes a few
// times, and everything once in a cycle.

// A node that has missed adverts of a better one waits before it claims what may be that one's:
// until missedFor after the last lost one, but not longer than holdMissed.
const (
	missedFor  = 10 * Interval
	holdMissed = 30 * Interval
)

// follow takes in an advert's place among those of its process. What two cycles of which all
// was heard didn't name is gone.
func (l *life) follow(now time.Time, a *Advert) (gone []netip.Addr) {
	if l.sequence != 0 && a.Sequence != l.sequence+1 {
		l.missed, l.wholeFrom = now, a.Cycle+1
	}
	if done := a.Cycle - 1; a.Cycle != l.cycle && l.wholeFrom < done {
		for address, s := range l.entries {
			if s.cycle < done-1 {
				gone = append(gone, address)
				delete(l.entries, address)
			}
		}
	}
	slices.SortFunc(gone, netip.Addr.Compare)
	l.sequence, l.cycle = a.Sequence, a.Cycle
	return gone
}

// mayBeBehind reports whether a living node that is better for an address has said something
// lately that this one has missed: that it is a candidate, or the owner.
func (e *election) mayBeBehind(now time.Time, s *standing) bool {
	for name, m := range e.members {
		if now.Sub(m.missed) < missedFor && m.vitals.lives && better(Entry{Address: s.Address, Weight: s.Weight}, name, s.Entry, e.node) {
			return true
		}
	}
	return false
}
