package core

import (
	"net/netip"
	"time"
)

// receive takes in an advert of another node, which no older one follows (link.Peers).
func (e *election) receive(now time.Time, a *Advert) []change {
	if a.Node == e.node {
		return nil
	}
	m := e.members[a.Node]
	if m == nil {
		m = &member{life: life{incarnation: a.Incarnation, entries: map[netip.Addr]*seen{}}, kept: map[netip.Addr]keeper{}}
		e.members[a.Node] = m
		for _, address := range e.order { // which it can't know yet
			e.tell(e.own[address], 1)
		}
	}
	if a.Incarnation != m.incarnation {
		m.begin(a.Incarnation)
	}
	m.take(now, a.Hears, e.self, now.Sub(m.heard))
	about := m.follow(now, a)
	m.heard, m.asks, m.gone, m.answers = now, 0, false, a.Answers
	m.noteKept(now, a)
	if a.Leaving {
		return e.forget(now, m)
	}
	e.stale = e.examine(now, m) || e.stale
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
			if s.Owner && entry.Owner && outranks(s.Entry, e.node, entry, a.Node) { // it doesn't know
				e.tell(s, repeats)
			}
		}
	}
	return e.judge(now, about)
}

// forget forgets what a node said, which is there no more.
func (e *election) forget(now time.Time, m *member) []change {
	m.entries, m.former = map[netip.Addr]*seen{}, nil
	m.heard, m.answered = time.Time{}, time.Time{}
	e.examine(now, m)
	return e.judge(now, e.order)
}

// expel takes over from a node that is out, whatever its kernel still answers.
func (e *election) expel(now time.Time, node string) []change {
	m := e.members[node]
	if m == nil {
		return nil
	}
	clear(m.kept)
	changes := e.forget(now, m)
	delete(e.members, node)
	return changes
}

// tell has adverts name an address: the next one, and as many as given in all.
func (e *election) tell(s *standing, times int) {
	if s.tell == 0 {
		e.telling = append(e.telling, s)
	}
	s.tell = max(s.tell, times)
	s.urgent = s.urgent || times == repeats
}

// putOff says whether other nodes are not to hear yet that this one owns an address.
func (e *election) putOff(a netip.Addr, yes bool) {
	if s := e.own[a]; s != nil {
		s.putOff = yes
	}
}

func (e *election) isPutOff(a netip.Addr) bool {
	s := e.own[a]
	return s != nil && s.putOff
}

// said is what adverts say of an address.
func (s *standing) said() Entry {
	said := s.Entry
	said.Owner = said.Owner && !s.putOff
	return said
}

// mostRepeats is how many addresses are told again in an Interval's half: others have to find
// the time to read that. A burst that came first may have been too much for them.
const mostRepeats = 16 * maxEntries

// adverts are what to send now. At least one goes out each Interval: what
// changed, and of the rest as much as has room. Urgent ones have changes only.
func (e *election) adverts(urgent bool) []*Advert {
	entries := e.toTell(urgent)
	if urgent && len(entries) == 0 {
		return nil
	}
	for range min(maxEntries-len(entries)%maxEntries, len(e.order)) {
		if urgent || e.next >= len(e.order) {
			break
		}
		entries = append(entries, e.own[e.order[e.next]].said())
		e.next++
	}
	var list []*Advert
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), maxEntries)
		e.sequence++
		list = append(list, &Advert{
			Node: e.node, Incarnation: e.incarnation, Sequence: e.sequence, Cycle: e.cycle, Entries: entries[:n], Leaving: e.leaving, Answers: e.kernelAnswers,
		})
		entries = entries[n:]
	}
	if !urgent {
		list[0].Misses = e.misses.Clone()
		list[0].Hears = e.hears(list[0])
	}
	if !urgent && e.next >= len(e.order) {
		e.next = 0
		e.cycle++
	}
	return list
}

// toTell lists what has changed: urgently, what no advert has named since.
func (e *election) toTell(urgent bool) (entries []Entry) {
	left, again := e.telling[:0], mostRepeats
	for _, s := range e.telling {
		if !s.putOff && (s.urgent || !urgent && again > 0) {
			if !s.urgent {
				again--
			}
			s.urgent = false
			s.tell--
			entries = append(entries, s.said())
		}
		if s.tell > 0 {
			left = append(left, s)
		}
	}
	clear(e.telling[len(left):])
	e.telling = left
	return entries
}
