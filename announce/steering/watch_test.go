package steering

import (
	"testing"
	"time"
)

// watches has a node ask the others for some time. Their kernels answer as given.
func (s *segment) watches(node string, d, every time.Duration, behind bool, answers func(to string) bool) {
	g := s.nodes[node]
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(every)
		ask, _, _ := g.watch(s.now, behind)
		for _, mac := range ask {
			for name, other := range s.nodes {
				if string(other.mac) == string(mac) && answers(name) {
					g.heardKernel(mac)
				}
			}
		}
	}
}

// TestLostAtOnce: packets are no longer led to a node that is gone, well before its messages
// are missed; they are to one whose agent alone is away, to one that never answered, and by a
// node that is too busy to read answers.
func TestLostAtOnce(t *testing.T) {
	const soon = 130 * time.Millisecond
	for _, c := range []struct {
		name          string
		before, after bool // its kernel answers
		every         time.Duration
		behind        bool // with reading
		want          string
	}{
		{"loses power", true, false, silentPause, false, "[] 0"},
		{"only its agent is away", true, true, silentPause, false, "[a] 1"},
		{"a kernel that never answers", false, false, silentPause, false, "[a] 1"},
		{"the other node sleeps", true, false, 5 * silentPause, false, "[a] 1"},
		{"the other node reads late", true, false, silentPause, true, "[a] 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSegment(t, "a", "b")
			s.has = map[string]int{"a": 1}
			s.change("a", true)
			s.watches("b", time.Second, silentPause, false, func(string) bool { return c.before })
			s.expect("before", "b", "[a] 1")
			s.deaf["a"] = true
			s.watches("b", soon, c.every, c.behind, func(string) bool { return c.after })
			s.expect("after", "b", c.want)
			// It was somewhere else for a while: its messages are heard again.
			s.deaf["a"] = false
			s.pass(sayEvery)
			s.expect("in the end", "b", "[a] 1")
		})
	}
}

// TestKernelThatCeasesToAnswer: of a node whose messages are heard, while its kernel answers no
// more, these count.
func TestKernelThatCeasesToAnswer(t *testing.T) {
	s := newSegment(t, "a", "b")
	s.has = map[string]int{"a": 1}
	s.change("a", true)
	s.watches("b", time.Second, silentPause, false, func(string) bool { return true })
	s.watches("b", time.Second, silentPause, false, func(string) bool { return false })
	s.expect("it is silent", "b", "[] 0")
	s.pass(sayEvery)
	s.expect("it says something", "b", "[a] 1")
	s.watches("b", time.Second, silentPause, false, func(string) bool { return false })
	s.expect("its kernel is still silent", "b", "[a] 1")
}

// TestOut: packets are no longer led to a node whose messages aren't believed any more, since it
// doesn't know the present key, whatever its kernel answers.
func TestOut(t *testing.T) {
	s := newSegment(t, "a", "b")
	s.has = map[string]int{"a": 1}
	s.change("a", true)
	answers := func(string) bool { return true }
	s.watches("b", time.Second, silentPause, false, answers)
	s.expect("before", "b", "[a] 1")
	s.deaf["a"] = true
	s.watches("b", lostAfter, silentPause, false, answers)
	s.nodes["b"].expire(s.now.Add(1))
	s.expect("after", "b", "[] 0")
}
