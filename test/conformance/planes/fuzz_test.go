package planes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/vm"
)

// What TestFuzzPlanes does without being asked for more.
const (
	fuzzSeed    = 1
	fuzzTables  = 15 // tables in a row; the virtual machine, without KVM, does a third
	fuzzPackets = 24 // probes for each
)

// TestFuzzPlanes applies random tables, one after the other, and holds random
// packets against Decide. FAIRWAY_FUZZ=DURATION goes on with other seeds for so
// long; FAIRWAY_FUZZ_SEED=N begins with another one.
func TestFuzzPlanes(t *testing.T) {
	t.Parallel()
	seed, duration := fuzzSettings(t)
	kinds := []string{"iptables/legacy"}
	for _, kind := range dataplane.Kinds() {
		kinds = append(kinds, kind.Name)
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			vm.With(t, func(t *testing.T) {
				topo := newTheatre(t, "").topo(t)
				end := time.Now().Add(duration)
				for s := seed; s == seed || time.Now().Before(end); s++ {
					t.Logf("FAIRWAY_FUZZ_SEED=%d", s)
					fuzz(t, topo, kind, s)
					if t.Failed() {
						return
					}
				}
			}, kernelNeeds[kind]...)
		})
	}
}

func fuzzSettings(t *testing.T) (seed uint64, duration time.Duration) {
	t.Helper()
	seed = fuzzSeed
	var err error
	if text := os.Getenv("FAIRWAY_FUZZ_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FAIRWAY_FUZZ_SEED: %v", err)
		}
	}
	if text := os.Getenv("FAIRWAY_FUZZ"); text != "" {
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("FAIRWAY_FUZZ: %v", err)
		}
	}
	return seed, duration
}

// fuzz plays the tables of one seed and removes the plane.
func fuzz(t *testing.T, s *Topology, kind string, seed uint64) {
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	r := &Run{topo: s, kind: kind, stateDir: t.TempDir(), flows: map[string]*flow{}, loads: map[string]*load{}}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	if err := r.fuzz(newGenerator(seed)); err != nil {
		t.Errorf("FAIRWAY_FUZZ_SEED=%d: %v\nthe table:\n%s\n%s", seed, err, tableText(r.table), r.Diagnosis())
	}
	if err := errors.Join(r.Finish(), s.Left(r.stateDir)); err != nil {
		t.Error(err)
	}
}

func (r *Run) fuzz(g *generator) error {
	tables := fuzzTables
	if vm.Inside() {
		tables /= 3
	}
	for n := range tables {
		r.table = g.next()
		if err := r.table.Validate(); err != nil {
			return fmt.Errorf("table %d: the generator is wrong: %w", n, err)
		}
		if err := r.fuzzApply(g); err != nil {
			return fmt.Errorf("table %d: %w", n, err)
		}
		if err := r.verify(); err != nil {
			return fmt.Errorf("table %d: %w", n, err)
		}
		if err := r.fuzzPackets(g); err != nil {
			return fmt.Errorf("table %d: %w", n, err)
		}
	}
	return nil
}

// fuzzApply applies the table as a change, as a verification, or by a process
// that was killed and started anew.
func (r *Run) fuzzApply(g *generator) error {
	switch g.IntN(8) {
	case 0:
		if err := r.kill(); err != nil {
			return err
		}
		return r.startAgain()
	case 1:
		return r.process.Apply(r.table, true)
	}
	return r.process.Apply(r.table, false)
}

// fuzzPackets probes with several packets at a time: silence takes long.
func (r *Run) fuzzPackets(g *generator) error {
	var probes []Probe
	for len(probes) < fuzzPackets {
		if p := g.packet(); observable(p, r.table.Decide(p.From.packet(p.Proto, p.To))) {
			probes = append(probes, p)
		}
	}
	errs := make([]error, len(probes))
	var all sync.WaitGroup
	for i, p := range probes {
		all.Go(func() { errs[i] = r.fuzzProbe(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *Run) fuzzProbe(p Probe) error {
	v := r.table.Decide(p.From.packet(p.Proto, p.To))
	e := &Expectation{
		Outcome: map[model.Action]Outcome{model.Forward: Forwarded, model.Refuse: Refused, model.Discard: Silent, model.Pass: Passed}[v.Action],
		Reach:   All,
	}
	if v.Pool != nil && v.Pool.Affinity > 0 {
		e.Reach = One
	}
	w := wantedOf(r.topo, p, e, v)
	w.weaken(v, r.lacks)
	w.crowded = true
	if err := r.topo.check(p, w); err != nil {
		return fmt.Errorf("%s %s to %s (from %s: %s): %w", p.From.Name, p.Proto, p.To, v.Origin, v.Reason, err)
	}
	return nil
}

// TestGenerator: random tables are valid, and reach every kind of verdict.
func TestGenerator(t *testing.T) {
	seen := map[model.Reason]int{}
	for seed := range uint64(20) {
		g := newGenerator(seed)
		for range fuzzTables {
			before := g.table
			table := g.next()
			if err := table.Validate(); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, tableText(table))
			}
			if again := throughWire(t, table.Delta(before)).Apply(before); !table.Since(again).Empty() {
				t.Fatalf("seed %d: a change doesn't lead to its table: %s", seed, describe(table.Since(again)))
			}
			for range fuzzPackets {
				p := g.packet()
				if v := table.Decide(p.From.packet(p.Proto, p.To)); observable(p, v) {
					seen[v.Reason]++
				}
			}
		}
	}
	for reason := range model.HasBackend + 1 {
		if seen[reason] < 10 {
			t.Errorf("%q was decided %d times", reason, seen[reason])
		}
	}
}

// throughWire is the change as the plane's process gets it.
func throughWire(t *testing.T, c *model.Delta) *model.Delta {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	got := &model.Delta{}
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	return got
}
