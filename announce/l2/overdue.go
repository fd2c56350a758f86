package l2

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
// they are still there, and reports whether one is found to be lost.
func (e *election) overdue(now time.Time) (names []string, lost bool) {
	for name, m := range e.members {
		silent := min(now.Sub(m.heard), now.Sub(m.answered))
		if !m.answers || m.gone || silent <= overdueAfter || silent > deadAfter || !m.owns() && len(m.kept) == 0 {
			continue
		}
		if m.asks >= lostAsks && now.Sub(m.asked) >= lostAsks*watchEvery {
			m.gone, lost = true, true
			continue
		}
		if m.asks == 0 {
			m.asked = now
		}
		m.asks++
		names = append(names, name)
	}
	return names, lost
}

// untilOverdue is how long there is nothing to look after: until the next advert may be
// overdue, or until the next question.
func (e *election) untilOverdue(now time.Time) time.Duration {
	pause := tickEvery
	for _, m := range e.members {
		silent := min(now.Sub(m.heard), now.Sub(m.answered))
		if !m.answers || m.gone || silent > deadAfter {
			continue
		}
		pause = min(pause, max(watchEvery, overdueAfter-silent+time.Millisecond))
	}
	return pause
}

// isLost reports whether a node's kernel has ceased to answer.
func (e *election) isLost(node string) bool {
	m := e.members[node]
	return m != nil && m.gone
}
