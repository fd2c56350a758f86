package link

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// ground is machines on a link. Each sends every 50 ms, and is asked by echo where it is silent.
type ground struct {
	now      time.Time
	names    []string
	machines map[string]*Detector
	asleep   map[string]bool         // runs no process, and its kernel answers
	dead     map[string]bool         // has no power
	cut      map[[2]string]bool      // frames from the first don't reach the second
	apiAway  bool                    // for all
	gone     map[string][]string     // whom each took for gone last
	answers  map[string]time.Time    // echoes under way, by asker and asked
	broken   map[[2]string]time.Time // when a machine last couldn't have answered another one
	wrong    string                  // what a machine took for gone that it reached all the time
}

func newGround(machines int) *ground {
	g := &ground{
		now: time.Unix(1e9, 0), machines: map[string]*Detector{}, asleep: map[string]bool{}, dead: map[string]bool{}, cut: map[[2]string]bool{},
		gone: map[string][]string{}, answers: map[string]time.Time{}, broken: map[[2]string]time.Time{},
	}
	for i := range machines {
		name := fmt.Sprint("m", i+1)
		g.names = append(g.names, name)
		g.machines[name] = NewDetector()
	}
	return g
}

func (g *ground) runs(name string) bool { return !g.dead[name] && !g.asleep[name] }

// pass lets time pass in steps of 10 ms.
func (g *ground) pass(t time.Duration) {
	for end := g.now.Add(t); g.now.Before(end); {
		g.now = g.now.Add(10 * time.Millisecond)
		if g.now.UnixMilli()%50 == 0 {
			g.send()
		}
		for _, name := range g.names {
			if g.runs(name) {
				g.step(name)
			}
		}
	}
}

func (g *ground) send() {
	for _, from := range g.names {
		if !g.runs(from) {
			continue
		}
		says := ParseMissing(g.machines[from].Missing().Append(nil))
		for _, to := range g.names {
			if to != from && g.runs(to) && !g.cut[[2]string{from, to}] {
				g.machines[to].Heard(g.now, from, says)
			}
		}
	}
}

func (g *ground) step(name string) {
	d := g.machines[name]
	for _, other := range g.names {
		if until, asking := g.answers[name+other]; asking && !g.now.Before(until) {
			delete(g.answers, name+other)
			answer := Answers
			if g.now.Sub(until) > 0 || g.dead[other] || g.cut[[2]string{name, other}] || g.cut[[2]string{other, name}] {
				answer = Silent
			}
			d.asked(g.now, other, answer)
		}
	}
	ask, _ := d.step(g.now, func() bool { return g.apiAway })
	for _, other := range ask {
		g.answers[name+other] = g.now.Add(110 * time.Millisecond)
	}
	for _, other := range g.names {
		pair := [2]string{name, other}
		if g.dead[other] || g.cut[pair] || g.cut[[2]string{other, name}] {
			g.broken[pair] = g.now
		}
	}
	gone := d.Gone()
	for _, other := range gone {
		if !slices.Contains(g.gone[name], other) && g.now.Sub(g.broken[[2]string{name, other}]) > askMissing+time.Second {
			g.wrong = name + " takes " + other + " for gone"
		}
	}
	g.gone[name] = gone
}

// want checks whom machines take for gone.
func (g *ground) want(t *testing.T, what string, want map[string][]string) {
	t.Helper()
	for _, name := range g.names {
		if g.runs(name) && !slices.Equal(g.gone[name], want[name]) {
			t.Errorf("%s: for %s %v are gone, want %v", what, name, g.gone[name], want[name])
		}
	}
}

// split cuts the first machines off from the others, in both directions.
func (g *ground) split(first int) {
	for i, a := range g.names {
		for j, b := range g.names {
			g.cut[[2]string{a, b}] = (i < first) != (j < first)
		}
	}
}

// soon is the bound for endpoints of a machine that has lost its power.
const soon = 450 * time.Millisecond

// TestGone: a machine without power is gone for all others before 450 ms have passed, and there
// again with its first message. It is forgotten after a minute, when its Lease has the word; while
// no API server answers, it stays gone.
func TestGone(t *testing.T) {
	for _, machines := range []int{2, 3, 4, 5, 20} {
		g := newGround(machines)
		g.pass(time.Second)
		g.want(t, "at first", nil)
		g.dead["m1"] = true
		g.pass(soon)
		gone := map[string][]string{}
		for _, name := range g.names[1:] {
			gone[name] = []string{"m1"}
		}
		what := fmt.Sprint("of ", machines)
		g.want(t, what+" without power", gone)
		g.dead["m1"] = false
		g.pass(100 * time.Millisecond)
		g.want(t, what+" with power again", nil)
		if machines > 5 {
			continue // it costs, and nothing is different
		}
		g.dead["m1"] = true
		g.apiAway = true
		g.pass(2 * knownFor)
		g.want(t, what+" for long, without a server", gone)
		g.apiAway = false
		g.pass(time.Second)
		g.want(t, what+" for long", nil)
	}
}

// TestGoneAgain: a machine that is there for a moment and loses its power again is gone as soon as
// the first time.
func TestGoneAgain(t *testing.T) {
	g := newGround(3)
	g.pass(time.Second)
	for _, there := range []time.Duration{time.Second, 200 * time.Millisecond, 3 * time.Second, 0} {
		g.dead["m1"] = true
		g.pass(soon)
		g.want(t, "without power", map[string][]string{"m2": {"m1"}, "m3": {"m1"}})
		g.dead["m1"] = false
		g.pass(there)
	}
}

// TestNotGone: who is only slow, whose agent only isn't there, or whom only some don't hear is
// gone for nobody; and who is cut off from most others takes nobody for gone.
func TestNotGone(t *testing.T) {
	for _, c := range []struct {
		what     string
		machines int
		do       func(*ground)
		want     map[string][]string
	}{
		{"an agent that stands still", 3, func(g *ground) { g.asleep["m1"] = true }, nil},
		{"an agent that stands still, of two", 2, func(g *ground) { g.asleep["m1"] = true }, nil},
		{"one doesn't hear another", 3, func(g *ground) { g.cut[[2]string{"m1", "m2"}] = true }, nil},
		{"one hears nobody", 3, func(g *ground) {
			g.cut[[2]string{"m2", "m1"}], g.cut[[2]string{"m3", "m1"}] = true, true
		}, nil},
		{"one cut off", 3, func(g *ground) { g.split(1) }, map[string][]string{"m2": {"m1"}, "m3": {"m1"}}},
		{"halves", 4, func(g *ground) { g.split(2) }, nil},
		{"two of five", 5, func(g *ground) { g.split(2) }, map[string][]string{"m3": {"m1", "m2"}, "m4": {"m1", "m2"}, "m5": {"m1", "m2"}}},
		{"of two, each by itself", 2, func(g *ground) { g.split(1) }, map[string][]string{"m1": {"m2"}, "m2": {"m1"}}},
		{"two of three without power", 3, func(g *ground) { g.dead["m1"], g.dead["m2"] = true, true }, nil},
		{"one that left", 3, func(g *ground) {
			g.dead["m1"] = true
			g.machines["m2"].Left(g.now, "m1")
			g.machines["m3"].Left(g.now, "m1")
		}, nil},
	} {
		g := newGround(c.machines)
		g.pass(time.Second)
		c.do(g)
		for range 20 {
			g.pass(500 * time.Millisecond)
			g.want(t, c.what, c.want)
		}
		g.asleep, g.cut = map[string]bool{}, map[[2]string]bool{}
		g.dead = map[string]bool{}
		g.pass(6 * time.Second) // who was missed is asked again by then
		g.want(t, c.what+", and over", nil)
	}
}

// TestSleeper: a machine that didn't run for a while takes nobody for gone when it wakes.
func TestSleeper(t *testing.T) {
	for _, machines := range []int{2, 3} {
		for slept := 100 * time.Millisecond; slept < 3*time.Second; slept += 130 * time.Millisecond {
			g := newGround(machines)
			g.pass(time.Second)
			g.asleep["m1"] = true
			g.pass(slept)
			g.asleep["m1"] = false
			for range 40 {
				g.pass(10 * time.Millisecond)
				g.want(t, fmt.Sprint("after ", slept), nil)
			}
		}
	}
}

// TestDetectorAtRandom: whatever happens, no machine is gone for one that reaches it; none takes
// itself for gone; and all is well again when all run and hear each other.
func TestDetectorAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := newGround(3 + r.IntN(5))
		g.pass(time.Second)
		for range 15 {
			name := g.names[r.IntN(len(g.names))]
			switch r.IntN(5) {
			case 0:
				g.dead[name] = !g.dead[name]
			case 1:
				g.asleep[name] = !g.asleep[name]
			case 2:
				g.split(r.IntN(len(g.names)))
			case 3:
				pair := [2]string{name, g.names[r.IntN(len(g.names))]}
				g.cut[pair] = !g.cut[pair]
			}
			g.pass(time.Duration(r.IntN(1500)) * time.Millisecond)
			for asker, gone := range g.gone {
				if slices.Contains(gone, asker) {
					t.Fatalf("seed %d: %s takes itself for gone", seed, asker)
				}
			}
			if g.wrong != "" {
				t.Fatalf("seed %d: %s, and reaches it", seed, g.wrong)
			}
		}
		g.dead, g.asleep, g.cut = map[string]bool{}, map[string]bool{}, map[[2]string]bool{}
		g.pass(6 * time.Second)
		g.want(t, fmt.Sprint("seed ", seed), nil)
	}
}

// TestMissingOnFrames: a message names as many as it has room for, and what was cut off says
// nothing.
func TestMissingOnFrames(t *testing.T) {
	m := &Missing{Nodes: []uint32{1, 2, 3}}
	b := m.Append(nil)
	if got := ParseMissing(b); got == nil || !slices.Equal(got.Nodes, m.Nodes) {
		t.Errorf("%v is read as %v", m, got)
	}
	for i := range b {
		if ParseMissing(b[:i]) != nil {
			t.Errorf("read with %d of %d bytes", i, len(b))
		}
	}
	for room, want := range map[int]int{-5: 0, 0: 0, 4: 0, 5: 1, 12: 2, 100: 3} {
		if c := m.Clone(); c.Fit(room) != 1+4*want || len(c.Nodes) != want {
			t.Errorf("%d bytes of room: %d nodes, want %d", room, len(c.Nodes), want)
		}
	}
}
