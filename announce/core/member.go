package core

import (
	"maps"
	"net/netip"
	"time"
)

// member is another node of the link.
type member struct {
	life
	attention
	vitals vitals
	// former is what the process before the present one owned: valid as long as the
	// node's kernel answers in its name. Nil if there is nothing.
	former *life
	// answered is when the node's kernel last said that it answers, in the name of
	// which incarnation.
	answered time.Time
	answerOf uint64
	// gone says that a node whose kernel answers, which is nothing that waits for its agent,
	// doesn't any more.
	gone, answers bool
	// asked is when it was asked that for the first time since it was heard, and
	// asks how often; last is when that was last done by overdue.
	asked, last time.Time
	asks        int
	// kept are the addresses that the node has connections of, though others own them now.
	kept map[netip.Addr]keeper
}

// life is what one process of a node said.
type life struct {
	incarnation, sequence uint64
	heard                 time.Time
	cycle                 uint32
	missed                time.Time // that an advert was found to be lost
	wholeFrom             uint32    // the cycle from which on none was
	entries               map[netip.Addr]*seen
}

// lives reports whether what a process said is in force: it was heard lately, or
// the node's kernel answers in its name.
func (m *member) lives(now time.Time, l *life) bool {
	return !m.gone && (now.Sub(l.heard) <= DeadAfter || l.incarnation == m.answerOf && now.Sub(m.answered) <= DeadAfter)
}

// mayAnswer reports whether the kernel of a node that is silent had no time yet to
// say that it answers: this node was too busy to ask.
func (m *member) mayAnswer(now time.Time) bool {
	silent := min(now.Sub(m.heard), now.Sub(m.answered))
	return !m.gone && silent <= askFor && (m.asks < leastAsks || now.Sub(m.asked) < Interval)
}

// vitals are what holds of a node since they were looked at: at each tick, and when it was
// heard. Whether the process before the present one is in force is former.
type vitals struct{ lives, former, mayAnswer, deaf bool }

// survey looks at all nodes, and reports whether anything has become different. While this
// node is behind with reading, it takes none for lost that may have said something.
func (e *election) survey(now time.Time) (different bool) {
	for _, m := range e.members {
		different = e.examine(now, m) || different
	}
	return different
}

func (e *election) examine(now time.Time, m *member) (different bool) {
	last, next := m.vitals, vitals{m.lives(now, &m.life), m.former != nil && m.lives(now, m.former), m.mayAnswer(now), m.longDeaf(now)}
	if e.behind && !m.gone && min(now.Sub(m.heard), now.Sub(m.answered)) <= askFor {
		next.lives, next.former, next.mayAnswer = next.lives || last.lives, next.former || last.former && m.former != nil, next.mayAnswer || last.mayAnswer
	}
	m.vitals = next
	return next != last
}

// standing is what the node has to do with an address just now; nil if that is
// nothing.
func (m *member) standing(a netip.Addr) *seen {
	if s := m.entries[a]; s != nil {
		if m.vitals.lives || s.Owner && m.vitals.mayAnswer {
			return s
		}
		return nil
	}
	if m.vitals.former {
		return m.former.entries[a]
	}
	return nil
}

// begin takes in that another process speaks for the node.
func (m *member) begin(incarnation uint64) {
	before := m.life
	m.life, m.attention = life{incarnation: incarnation, entries: map[netip.Addr]*seen{}}, attention{}
	maps.DeleteFunc(before.entries, func(_ netip.Addr, s *seen) bool { return !s.Owner })
	if len(before.entries) > 0 {
		m.former = &before
	}
}

func (m *member) forget(a netip.Addr) {
	delete(m.entries, a)
	if m.former != nil {
		delete(m.former.entries, a)
	}
}

// seen is what a member said of an address, and in which of its cycles.
type seen struct {
	Entry
	cycle uint32
}

func (l *life) owns() bool {
	for _, s := range l.entries {
		if s.Owner {
			return true
		}
	}
	return false
}
