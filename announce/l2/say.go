package l2

import (
	"net/netip"
	"time"
)

// receive takes in an advert of another node.
func (e *election) receive(now time.Time, a *advert) []change {
	if a.Node == e.node {
		return nil
	}
	m := e.members[a.Node]
	if m == nil {
		m = &member{life: life{incarnation: a.Incarnation, entries: map[netip.Addr]*seen{}}, kept: map[netip.Addr]keeper{}}
		e.members[a.Node] = m
		for _, s := range e.own { // which it can't know yet
			s.tell = max(s.tell, 1)
		}
	}
	switch {
	case a.Incarnation < m.incarnation || a.Incarnation == m.incarnation && a.Sequence <= m.sequence && m.sequence != 0:
		return nil
	case a.Incarnation > m.incarnation:
		m.begin(a.Incarnation)
	}
	m.take(now, a.Hears, e.self, now.Sub(m.heard))
	var about []netip.Addr
	m.sequence, m.heard, m.cycle, m.asks, m.gone, m.answers = a.Sequence, now, a.Cycle, 0, false, a.Answers
	m.noteKept(now, a)
	if a.Leaving {
		m.entries, m.former = map[netip.Addr]*seen{}, nil
		m.heard, m.answered = time.Time{}, time.Time{}
		return e.evaluate(now)
	}
	for _, entry := range a.Entries {
		about = append(about, entry.Address)
		if !entry.Candidate && !entry.Owner && !entry.Keeps {
			m.forget(entry.Address)
		} else {
			m.entries[entry.Address] = &seen{entry, a.Cycle}
		}
		if s := e.own[entry.Address]; s != nil {
			s.highest = max(s.highest, entry.Epoch)
			s.hadOwner = s.hadOwner || entry.Owner && !entry.Probing
		}
	}
	return e.judge(now, about)
}

// adverts are what to send now. At least one goes out each Interval: what
// changed, and of the rest as much as has room. Urgent ones have changes only.
func (e *election) adverts(urgent bool) []*advert {
	var entries []entry
	for _, a := range e.order {
		if s := e.own[a]; s.tell > 0 {
			s.tell--
			entries = append(entries, s.entry)
		}
	}
	if urgent && len(entries) == 0 {
		return nil
	}
	for range min(maxEntries-len(entries)%maxEntries, len(e.order)) {
		if e.next >= len(e.order) {
			break
		}
		entries = append(entries, e.own[e.order[e.next]].entry)
		e.next++
	}
	var list []*advert
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), maxEntries)
		e.sequence++
		list = append(list, &advert{
			Node: e.node, Incarnation: e.incarnation, Sequence: e.sequence, Cycle: e.cycle, Entries: entries[:n], Leaving: e.leaving, Answers: e.kernelAnswers,
		})
		entries = entries[n:]
	}
	if !urgent {
		list[0].Hears = e.hears(list[0])
	}
	if e.next >= len(e.order) {
		e.next = 0
		e.cycle++
	}
	return list
}
