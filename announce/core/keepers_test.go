package core

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// keepingLink is nodes of which each counts the connections of what it gave up.
func keepingLink(t *testing.T, names ...string) *segment {
	l := newSegment(t, names...)
	for _, name := range names {
		l.nodes[name].keeps = true
	}
	l.candidates(vip)
	l.pass(10)
	l.nodes[l.owner(vip)].confirm(vip)
	return l
}

// leads says who leads connections to whom: "b>a".
func (l *segment) leads() string {
	var list []string
	for _, name := range l.names() {
		if to := l.nodes[name].formers(l.now)[vip]; to != "" && !l.asleep[name] {
			list = append(list, name+">"+to)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// moves has the owner give the address up, to a node that is the only candidate then.
func (l *segment) moves(to string) {
	l.Helper()
	for _, name := range l.names() {
		if name == to {
			l.candidate(name, 0, vip)
		}
	}
	for _, name := range l.names() {
		if name != to {
			l.candidate(name, 0)
		}
	}
	l.pass(5)
	if got := l.owner(vip); got != to {
		l.Fatalf("%s owns the address, want %s", got, to)
	}
	l.nodes[to].confirm(vip)
}

// restart has another process speak for a node.
func (l *segment) restart(name string) {
	l.nodes[name] = newElection(name, uint64(l.now.UnixNano()), l.now)
	l.nodes[name].keeps = true
}

// TestWhoLeadsToWhom: the owner leads what isn't its own to the node that had the address
// before, as long as that one has connections, whoever starts again meanwhile.
func TestWhoLeadsToWhom(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(l *segment)
		want string
	}{
		{"nobody gave anything up", func(l *segment) { l.pass(3) }, ""},
		{"a gave up", func(l *segment) { l.moves("b") }, "b>a"},
		{"a has not counted for long", func(l *segment) { l.moves("b"); l.pass(300) }, "b>a"},
		{"a has no connections left", func(l *segment) { l.moves("b"); l.nodes["a"].letGo(vip); l.pass(2) }, ""},
		{"a has it again, b has connections", func(l *segment) { l.moves("b"); l.moves("a") }, "a>b"},
		{"a has it again, b has none", func(l *segment) { l.moves("b"); l.moves("a"); l.nodes["b"].letGo(vip); l.pass(2) }, ""},
		{"a, b, c", func(l *segment) { l.moves("b"); l.moves("c") }, "b>a c>b"},
		{"a, b, c; b has nothing of its own but leads on", func(l *segment) { l.moves("b"); l.moves("c"); l.nodes["a"].letGo(vip); l.pass(2) }, "c>b"},
		{"a, b, c, a", func(l *segment) { l.moves("b"); l.moves("c"); l.moves("a") }, "a>c c>b"},
		{"a is silent for a moment", func(l *segment) { l.moves("b"); l.asleep["a"] = true; l.pass(30) }, "b>a"},
		{"a is silent for long", func(l *segment) { l.moves("b"); l.asleep["a"] = true; l.pass(60) }, ""},
		{"another process of a doesn't know yet", func(l *segment) { l.moves("b"); l.restart("a"); l.pass(20) }, "b>a"},
		{"another process of a has counted none", func(l *segment) { l.moves("b"); l.restart("a"); l.pass(70) }, ""},
		{"another process of a has counted some", func(l *segment) {
			l.moves("b")
			l.restart("a")
			l.pass(20)
			l.nodes["a"].keep(vip)
			l.pass(100)
		}, "b>a"},
		{"another process of b takes over from its kernel", func(l *segment) {
			l.moves("b")
			l.restart("b")
			l.nodes["b"].adopt(l.now, map[netip.Addr]uint32{vip: 2})
			l.candidate("b", 0, vip)
			l.pass(5)
		}, "b>a"},
		{"a leaves the link", func(l *segment) {
			l.moves("b")
			l.nodes["a"].leaving = true
			l.pass(1)
			l.asleep["a"] = true
			l.pass(60)
		}, ""},
		{"the owner dies: the next one leads to whom it led", func(l *segment) {
			l.moves("b")
			l.candidate("c", 0, vip)
			l.asleep["b"] = true
			l.pass(20)
		}, "c>a"},
		{"two owned it while the link was cut: the one that stops has connections", func(l *segment) {
			l.candidate("b", 0, vip)
			l.cut[[2]string{"a", "b"}], l.cut[[2]string{"b", "a"}] = true, true
			l.pass(10)
			l.nodes["b"].confirm(vip)
			clear(l.cut)
			l.pass(5)
		}, "b>a"},
		{"connections go on anywhere", func(l *segment) {
			for _, n := range l.nodes {
				n.anywhere = map[netip.Addr]bool{vip: true}
			}
			l.moves("b")
		}, ""},
		{"nobody takes it over for a second, then c does", func(l *segment) {
			l.asleep["b"], l.asleep["c"] = true, true
			l.candidate("a", 0)
			l.pass(2 * int(handOver/Interval))
			l.asleep["c"] = false
			l.candidate("c", 0, vip)
			l.pass(15)
		}, "c>a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := keepingLink(t, "a", "b", "c")
			l.candidate("b", 0)
			l.candidate("c", 0)
			l.pass(5)
			l.candidate("a", 0, vip)
			l.moves("a")
			for _, name := range l.names() {
				l.nodes[name].letGo(vip)
			}
			l.pass(3)
			c.do(l)
			if got := l.leads(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestUnsettled: from when a node is to give an address up until its connections are
// counted, it never looks as if it had none.
func TestUnsettled(t *testing.T) {
	l := keepingLink(t, "a", "b")
	owner := l.owner(vip)
	e := l.nodes[owner]
	var steps []string
	step := func(what string) {
		steps = append(steps, fmt.Sprintf("%s: %d unsettled, kept %v", what, e.unsettled(), e.kept()))
	}
	step("owner")
	l.candidate(owner, 0)
	step("about to give it up")
	l.pass(3)
	step("given up")
	e.keep(vip)
	step("counted")
	e.letGo(vip)
	step("none left")
	want := []string{
		"owner: 0 unsettled, kept []", "about to give it up: 1 unsettled, kept []",
		"given up: 1 unsettled, kept [192.0.2.1]", "counted: 0 unsettled, kept [192.0.2.1]", "none left: 0 unsettled, kept []",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}
	if left := slices.Collect(maps.Keys(l.nodes["a"].own)); len(left) > 1 {
		t.Errorf("left over: %v", left)
	}
}
