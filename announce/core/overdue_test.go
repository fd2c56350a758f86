package core

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestOverdue: an owner whose kernel answers questions is lost when it leaves some without an
// answer, well before its adverts are missed for long. Whoever is too busy to ask, or whose
// questions are answered, takes nobody for lost; nor does anybody else.
func TestOverdue(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers bool // the kernel, as adverts say
		kernel  bool // it does so
		every   time.Duration
		lost    bool
	}{
		{"silent", true, false, watchEvery, true},
		{"kernel answers", true, true, watchEvery, false},
		{"a kernel that never answers", false, false, watchEvery, false},
		{"the other one is busy", true, false, 50 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newSegment(t, "a", "b")
			for _, n := range l.nodes {
				n.kernelAnswers = c.answers
			}
			l.candidates(vip)
			l.pass(10)
			owner := l.owner(vip)
			l.nodes[owner].confirm(vip)
			l.pass(1)
			other := l.nodes[map[string]string{"a": "b", "b": "a"}[owner]]
			l.asleep[owner] = true
			const within = 110 * time.Millisecond
			var lost bool
			for begun := l.now; l.now.Sub(begun) < within && !lost; {
				l.now = l.now.Add(c.every)
				var names []string
				if names, lost = other.overdue(l.now); len(names) > 0 && c.kernel {
					other.answer(l.now, owner, l.nodes[owner].incarnation)
				}
				other.tick(l.now)
			}
			if took := len(other.owned()) == 1; lost != c.lost || took != c.lost {
				t.Errorf("within %s: lost %v, taken over %v; want %v", within, lost, took, c.lost)
			}
			l.asleep[owner] = false
			l.pass(10)
			l.owner(vip) // it is heard again
		})
	}
}

// TestLostKeeper: connections aren't led to a node that is lost, which would leave clients
// hanging; they are to one whose agent alone is away.
func TestLostKeeper(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		l := newSegment(t, "a", "b")
		for _, n := range l.nodes {
			n.keeps, n.kernelAnswers = true, true
		}
		l.candidates(vip)
		l.pass(10)
		former := l.owner(vip)
		l.nodes[former].confirm(vip)
		next := map[string]string{"a": "b", "b": "a"}[former]
		l.moves(next)
		want := next + ">" + former
		if got := l.leads(); got != want {
			t.Fatalf("connections are led %q, want %q", got, want)
		}
		l.asleep[former] = true
		for begun := l.now; l.now.Sub(begun) < 110*time.Millisecond; {
			l.now = l.now.Add(watchEvery)
			if names, _ := l.nodes[next].overdue(l.now); len(names) > 0 && kernel {
				l.nodes[next].answer(l.now, former, l.nodes[former].incarnation)
			}
		}
		if !kernel {
			want = ""
		}
		if got := l.leads(); got != want {
			t.Errorf("kernel answers %v: connections are led %q, want %q", kernel, got, want)
		}
	}
}

// TestSleptSinceItAsked: a node that slept between its questions and the next look at who has
// answered has had no time to read the answers, and takes nobody for lost.
func TestSleptSinceItAsked(t *testing.T) {
	l := newSegment(t, "a", "b")
	for _, n := range l.nodes {
		n.kernelAnswers = true
	}
	l.candidates(vip)
	l.pass(10)
	owner := l.owner(vip)
	l.nodes[owner].confirm(vip)
	l.pass(1)
	other := l.nodes[map[string]string{"a": "b", "b": "a"}[owner]]
	l.now = l.now.Add(overdueAfter)
	for range lostAsks {
		l.now = l.now.Add(watchEvery)
		if names, lost := other.overdue(l.now); len(names) != 1 || lost {
			t.Fatalf("asks %v, lost %v", names, lost)
		}
	}
	l.now = l.now.Add(5 * watchEvery) // it doesn't run; answers wait for it
	if names, lost := other.overdue(l.now); len(names) != 1 || lost {
		t.Errorf("after it slept: asks %v, lost %v", names, lost)
	}
	l.now = l.now.Add(watchEvery) // and there were none
	if _, lost := other.overdue(l.now); !lost {
		t.Error("it is never lost")
	}
}

// TestSleptWhileItListened: a node that comes, and doesn't run for as long as it has to listen,
// claims nothing before it has read what it was told meanwhile.
func TestSleptWhileItListened(t *testing.T) {
	for _, by := range []string{"tick", "candidates"} {
		l := newSegment(t, "a")
		l.candidates(vip)
		l.pass(10)
		l.nodes["a"].confirm(vip)
		b := newElection("b", uint64(l.now.UnixNano()), l.now)
		l.now = l.now.Add(DeadAfter + Interval)
		if by == "tick" {
			b.setCandidates(l.now.Add(-DeadAfter), map[netip.Addr]int32{vip: 1})
			b.tick(l.now)
		} else {
			b.setCandidates(l.now, map[netip.Addr]int32{vip: 1})
		}
		if got := b.owned(); len(got) > 0 {
			t.Errorf("%s: claims %v before it heard the owner", by, got)
		}
		l.nodes["b"] = b
		l.pass(5)
		if got := l.owner(vip); got != "a" {
			t.Errorf("%s: %s owns the address", by, got)
		}
		l.asleep["a"] = true
		l.pass(20)
		if got := l.owner(vip); got != "b" {
			t.Errorf("%s: nobody follows: %q", by, got)
		}
	}
}

// TestKeeperLostLate: a node that was too busy to ask for longer than nodes are taken for alive
// finds out all the same, and at once, that the one that keeps connections is gone.
func TestKeeperLostLate(t *testing.T) {
	l := newSegment(t, "a", "b")
	for _, n := range l.nodes {
		n.keeps, n.kernelAnswers = true, true
	}
	l.candidates(vip)
	l.pass(10)
	former := l.owner(vip)
	l.nodes[former].confirm(vip)
	next := map[string]string{"a": "b", "b": "a"}[former]
	l.moves(next)
	l.now = l.now.Add(2 * DeadAfter)
	for range 2 * lostAsks {
		l.now = l.now.Add(watchEvery)
		l.nodes[next].overdue(l.now)
	}
	l.asleep[former] = true
	if got := l.leads(); got != "" {
		t.Errorf("connections are led %q", got)
	}
}

// TestFirstWaitsForNobody: of nodes that may have an address that nobody has, the best one
// takes it at once, and others wait for it; where weights count, all wait to hear them.
func TestFirstWaitsForNobody(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		for _, weighted := range []bool{false, true} {
			l := newSegment(t, "a", "b")
			l.candidates(vip6)
			l.pass(10)
			e, other := l.nodes[name], map[string]string{"a": "b", "b": "a"}[name]
			e.weighted = map[netip.Addr]bool{vip: weighted}
			said := l.nodes[other].adverts(false)[0]
			said.Entries = append(said.Entries, Entry{Address: vip, Candidate: true})
			e.receive(l.now, said)
			e.setCandidates(l.now, map[netip.Addr]int32{vip: 0, vip6: 0})
			best := better(Entry{Address: vip}, name, Entry{Address: vip}, other)
			if got, want := slices.Contains(e.owned(), vip), best && !weighted; got != want {
				t.Errorf("%s, weights %v: owns the address at once: %v, want %v", name, weighted, got, want)
			}
			l.candidates(vip, vip6)
			l.pass(3)
			l.owner(vip)
		}
	}
}

// TestUntilOverdue: nobody is looked after before an advert may be overdue.
func TestUntilOverdue(t *testing.T) {
	l := newSegment(t, "a", "b")
	e := l.nodes["a"]
	if got := e.untilOverdue(l.now); got != tickEvery {
		t.Errorf("alone: %s", got)
	}
	l.nodes["b"].kernelAnswers = true
	l.pass(1)
	for after, want := range map[time.Duration]time.Duration{
		0: tickEvery, 30 * time.Millisecond: 36 * time.Millisecond, 60 * time.Millisecond: watchEvery, 100 * time.Millisecond: watchEvery, 400 * time.Millisecond: tickEvery,
	} {
		if got := e.untilOverdue(l.now.Add(after)); got != want {
			t.Errorf("%s after an advert: %s, want %s", after, got, want)
		}
	}
}
