package simulate

import (
	"net/netip"
	"time"
)

const (
	// mostTwo is how long two machines may answer for an address, and mostNone how long nobody may
	// while an agent is willing: both of nodes that hear each other.
	mostTwo  = 2 * time.Second
	mostNone = 4 * time.Second
	// mostCircle is how long a connection may be led in a circle.
	mostCircle = time.Second
	// outAfter is how long a node answers at most that doesn't know the present key; see link.Peers.
	outAfter = 13 * time.Second
	// mostFrames is how many frames a node may send in a second while nothing changes.
	mostFrames = 50
	// mostSize is how many things an agent may remember, for each node and address and for each pair.
	mostSize = 16
)

// watch is what has been so for how long.
type watch struct {
	changed                time.Duration // when the link was disturbed last
	gentle                 bool          // only what loses no connection
	two                    map[netip.Addr]time.Duration
	none                   map[netip.Addr]time.Duration
	circles                map[netip.Addr]time.Duration
	looked, lookedAtAgents time.Duration
	// answered counts how often nodes began to answer for an address.
	answered map[netip.Addr]int
}

func newWatch() watch {
	return watch{two: map[netip.Addr]time.Duration{}, none: map[netip.Addr]time.Duration{}, circles: map[netip.Addr]time.Duration{}, answered: map[netip.Addr]int{}}
}

// isImpaired reports whether something is wrong with the link that lasts.
func (w *world) isImpaired() bool {
	if len(w.cut) > 0 || w.loss > usualLoss {
		return true
	}
	for _, m := range w.machines {
		if m.stopped || m.busy {
			return true
		}
	}
	return false
}

// look finds what must not be.
func (w *world) look() {
	const often = time.Millisecond
	if w.now-w.watch.looked < often {
		return
	}
	w.watch.looked = w.now
	if w.isImpaired() {
		w.watch.changed = w.now
	}
	for _, a := range w.addresses {
		answering, anybody, willing := 0, false, false
		for _, m := range w.machines {
			answers := m.answers(a)
			if answers && !m.out {
				answering++
			}
			anybody = anybody || answers && !m.expelled
			willing = willing || m.isWilling(a)
		}
		w.since(w.watch.two, a, answering > 1, mostTwo, "answered for by more than one node")
		w.since(w.watch.none, a, !anybody && willing && !w.has(a), mostNone, "answered for by nobody")
	}
	const seldom = 20 * time.Millisecond
	if w.now-w.watch.lookedAtAgents < seldom {
		return
	}
	w.watch.lookedAtAgents = w.now
	for _, m := range w.machines {
		if m.agent != nil {
			m.lookAtAgent()
		}
	}
}

func (m *machine) lookAtAgent() {
	nodes, addresses := len(m.machines), len(m.addresses)
	if n := m.agent.Size(); n > mostSize*(nodes+1)*(addresses+1) {
		m.fail("%s remembers %d things of %d nodes and %d addresses", m.name, n, nodes, addresses)
	}
	for _, other := range m.machines {
		if known := m.agent.Peers().MACOf(other.name); known != nil && mac(known) != other.card {
			m.fail("%s takes %s for %s", m.name, known, other.name)
		}
	}
}

// since finds out what has been so for too long, nothing having disturbed it meanwhile.
func (w *world) since(at map[netip.Addr]time.Duration, a netip.Addr, is bool, most time.Duration, what string) {
	began, was := at[a]
	switch {
	case !is && was:
		delete(at, a)
	case is && !was:
		at[a] = w.now
	case is && w.now-max(began, w.watch.changed) > most && w.broken == "":
		w.describe(a)
		w.fail("%s is %s for %s", a, what, w.now-max(began, w.watch.changed))
	}
}

func (t *watch) circle(w *world, a netip.Addr) {
	w.since(t.circles, a, true, mostCircle, "led in a circle")
}
func (t *watch) noCircle(a netip.Addr) { delete(t.circles, a) }

// lost is about a connection whose packets came to a machine that doesn't have it, and doesn't
// know who does.
func (t *watch) lost(w *world, f *flow, m *machine) {
	if t.gentle {
		w.fail("a connection to %s at %s is lost: its packets come to %s", f.address, f.at.name, m.name)
	}
}

// isQuiet looks whether a link on which nothing changes is quiet.
func (w *world) isQuiet(d time.Duration) {
	before, answered := map[*machine]int{}, 0
	for _, m := range w.machines {
		before[m] = m.frames
	}
	for _, n := range w.watch.answered {
		answered -= n
	}
	w.run(d)
	for _, m := range w.machines {
		if sent := m.frames - before[m]; sent > mostFrames*int(d/time.Second) {
			w.fail("%s sends %d frames in %s while nothing changes", m.name, sent, d)
		}
	}
	for _, n := range w.watch.answered {
		answered += n
	}
	if answered > 0 {
		w.fail("%d addresses move while nothing changes", answered)
	}
}

// noteContest looks whether the owner of an address names a machine that has it, too.
func (w *world) noteContest(s *stranger) {
	for _, m := range w.machines {
		if m.agent == nil {
			continue
		}
		for _, status := range m.agent.Status() {
			if status.Address == s.address && status.Conflict != "" {
				return
			}
		}
	}
	w.fail("no node has noticed that %x has %s, too", s.card, s.address)
}

// describe traces what machines know of an address.
func (w *world) describe(a netip.Addr) {
	for _, m := range w.machines {
		w.trace("%s: its kernel answers for %v, agent: %t, drained: %t, serves it: %t", m.name, m.kernel.owned, m.agent != nil, m.drained, m.served[a])
		if m.agent == nil {
			continue
		}
		for _, s := range m.agent.Status() {
			if s.Address == a {
				w.trace("%s knows %+v", m.name, s)
			}
		}
	}
}
