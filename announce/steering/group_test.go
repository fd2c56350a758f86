package steering

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// segment is a link with nodes, whose messages reach all that listen.
type segment struct {
	*testing.T
	now   time.Time
	nodes map[string]*group
	deaf  map[string]bool
	// has are how many connections nodes have.
	has map[string]int
}

func newSegment(t *testing.T, names ...string) *segment {
	s := &segment{t, time.Unix(1000, 0), map[string]*group{}, map[string]bool{}, map[string]int{}}
	for i, name := range names {
		s.nodes[name] = newGroup(name, uint64(s.now.UnixNano()), mac(i))
	}
	s.say()
	return s
}

func mac(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, byte(i)} }

// say has all nodes say what they have to say, until nothing urgent is left.
func (s *segment) say() {
	s.tell(false)
	for range 2 * repeats {
		s.tell(true)
	}
}

func (s *segment) tell(urgent bool) {
	for from, g := range s.nodes {
		for _, m := range g.messages(urgent) {
			if s.deaf[from] {
				continue
			}
			for to, other := range s.nodes {
				if to == from || s.deaf[to] {
					continue
				}
				due, _ := other.receive(s.now, g.mac, m)
				for _, a := range due {
					other.prepared(s.now, a, s.has[to] > 0)
				}
			}
		}
	}
}

// pass lets time pass, in which nodes go on saying what they do.
func (s *segment) pass(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(sayEvery)
		s.say()
	}
}

// change has a node ask for a change, and returns whether it was answered.
func (s *segment) change(name string, leaving bool) bool {
	g := s.nodes[name]
	s.now = s.now.Add(time.Millisecond)
	g.begin(s.now, []netip.Addr{four}, leaving)
	g.prepared(s.now, four, s.has[name] > 0)
	s.say()
	answered := g.unprepared(s.now) == 0
	g.end()
	return answered
}

func (s *segment) expect(what, node, want string) {
	s.Helper()
	r := s.nodes[node].ringOf(s.now, four)
	var names []string
	for _, m := range r.Nodes {
		for name, g := range s.nodes {
			if slices.Equal(g.mac, m) {
				names = append(names, name)
			}
		}
	}
	if got := fmt.Sprint(names, r.After); got != want {
		s.Errorf("%s: %s leads through %s, want %s", what, node, got, want)
	}
}

// TestRings: who has connections is asked for strays, first the one that leaves, and each
// goes on to those that come after it.
func TestRings(t *testing.T) {
	s := newSegment(t, "a", "b", "c", "d")
	s.has = map[string]int{"a": 1, "b": 1, "c": 1}
	if !s.change("b", true) {
		t.Fatal("not all have answered")
	}
	s.expect("b leaves", "a", "[b c] 1")
	s.expect("b leaves", "b", "[a c] 0")
	s.expect("b leaves", "c", "[b a] 2")
	s.expect("b leaves", "d", "[b a c] 3")
	s.nodes["b"].holds(four, false)
	s.say()
	s.expect("b is empty", "d", "[a c] 2")
	s.pass(settles + 2*sayEvery)
	for _, name := range []string{"a", "c"} {
		s.nodes[name].holds(four, false)
	}
	s.say()
	for name, g := range s.nodes {
		s.now = s.now.Add(time.Millisecond)
		if over := g.expire(s.now); !slices.Equal(over, []netip.Addr{four}) {
			t.Errorf("nobody has a connection left: at %s, %v is over", name, over)
		}
	}
}

// TestSilentNodes: nobody waits for a node that is silent for long, and its connections are
// lost. One that hears only later of a change takes it up.
func TestSilentNodes(t *testing.T) {
	s := newSegment(t, "a", "b", "c")
	s.has = map[string]int{"a": 1, "c": 1}
	s.deaf["c"] = true
	if s.change("a", true) {
		t.Error("answered, but c didn't")
	}
	s.pass(lostAfter + sayEvery)
	if !s.change("a", true) {
		t.Error("c is waited for, which has been silent for long")
	}
	s.deaf["c"] = false
	s.pass(sayEvery)
	s.expect("c is back", "c", "[a] 1")
	s.expect("c is back", "b", "[a c] 1")
	s.deaf["a"] = true
	s.pass(lostAfter + sayEvery)
	s.expect("a is silent", "b", "[c] 0")
}

// TestNextProcess: what a node said before its agent was killed counts until the next one
// says something else.
func TestNextProcess(t *testing.T) {
	s := newSegment(t, "a", "b")
	s.has = map[string]int{"a": 1}
	s.change("a", true)
	s.nodes["a"] = newGroup("a", uint64(s.now.Add(time.Second).UnixNano()), mac(0))
	s.nodes["a"].leaving = true
	s.say()
	s.expect("a has another process", "b", "[a] 1")
	s.nodes["a"].prepared(s.now, four, false)
	s.say()
	s.expect("which has no connections", "b", "[] 0")
}

// TestManyAddresses: ten thousand addresses are told in messages that fit, and once only
// unless there are connections.
func TestManyAddresses(t *testing.T) {
	g := newGroup("a", 1, mac(0))
	var list []netip.Addr
	for a := netip.MustParseAddr("10.0.0.0"); len(list) < 10000; a = a.Next() {
		list = append(list, a)
	}
	g.begin(time.Unix(1001, 0), list, true)
	if n := len(g.messages(false)); n != 10000/maxEntries {
		t.Errorf("%d messages", n)
	}
	for _, a := range list {
		g.prepared(time.Unix(1001, 0), a, a == list[7])
	}
	g.end()
	for range repeats {
		g.messages(true)
	}
	if list := g.messages(false); len(list) != 1 || len(list[0].Entries) != 1 {
		t.Errorf("%d messages", len(list))
	}
}
