package core

import "time"

// Owners whose kernel answers questions are noticed to be lost sooner than others: their
// adverts come twice in an Interval, and a kernel that answers waits for no agent. The
// asking node must have had the time to ask, and to hear the answers.
const (
	// watchEvery is how often owners are looked after.
	watchEvery = 10 * time.Millisecond
	// overdueAfter is when an owner is asked that was not heard.
	overdueAfter = tickEvery + 15*time.Millisecond
	// lostAsks is how many questions an owner leaves without an answer that is lost.
	lostAsks = 3
)

// overdue names the owners, and the nodes that keep connections, that are to be asked whether
// they are still there, but for those that don't hear this node, and reports whether one is found to be lost.
func (e *election) overdue(now time.Time) (names []string, lost bool) {
	for _, name := range e.names() {
		m := e.members[name]
		silent := min(now.Sub(m.heard), now.Sub(m.answered))
		if !m.answers || m.gone || m.deaf || silent <= overdueAfter || silent > m.watchedFor() || !m.owns() && len(m.kept) == 0 {
			continue
		}
		// A node that slept since it asked may have answers that it hasn't read.
		awake := now.Sub(m.last) < 2*watchEvery
		if m.asks >= lostAsks && now.Sub(m.asked) >= lostAsks*watchEvery && awake && !e.behind {
			m.gone, lost = true, true
			continue
		}
		if m.asks == 0 {
			m.asked = now
		}
		m.asks++
		m.last = now
		names = append(names, name)
	}
	return names, lost
}

// untilOverdue is how long there is nothing to look after: until the next advert may be
// overdue, until the next question, or until a claim has waited.
func (e *election) untilOverdue(now time.Time) time.Duration {
	pause := tickEvery
	if !e.again.IsZero() {
		pause = max(e.again.Sub(now), time.Millisecond)
	}
	for _, m := range e.members {
		silent := min(now.Sub(m.heard), now.Sub(m.answered))
		if !m.answers || m.gone || m.deaf || silent > m.watchedFor() {
			continue
		}
		pause = min(pause, max(watchEvery, overdueAfter-silent+time.Millisecond))
	}
	return pause
}

// watchedFor is how long a silent node is looked after. One that keeps connections is until
// these count as lost anyway: a node that was too busy to ask it before would lead packets
// to it all the time.
func (m *member) watchedFor() time.Duration {
	if len(m.kept) > 0 {
		return LostAfter
	}
	return DeadAfter
}

// isLost reports whether a node's kernel has ceased to answer.
func (e *election) isLost(node string) bool {
	m := e.members[node]
	return m != nil && m.gone
}
