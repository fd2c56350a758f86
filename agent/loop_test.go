package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// faultyPlane is a plane in memory of which one call in ten fails, with some of
// the table in force or none.
type faultyPlane struct {
	mu      sync.Mutex
	rng     *rand.Rand
	inForce *model.Table
	applies int
	broken  bool // somebody removed our objects
	missing bool
}

var errInjected = errors.New("injected fault")

func (p *faultyPlane) Apply(_ context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applies++
	if p.missing {
		return kernel.Result{}, fmt.Errorf("apply: %w", &kernel.MissingError{What: "nf_tables"})
	}
	if p.rng.IntN(10) == 0 {
		if p.rng.IntN(2) == 0 {
			p.inForce = nil
		}
		return kernel.Result{}, errInjected
	}
	p.inForce = want
	if verify == kernel.VerifyAll {
		p.broken = false
	}
	return kernel.Result{}, nil
}

func (p *faultyPlane) Read(context.Context, kernel.Query) (kernel.Reading, error) {
	return kernel.Reading{}, nil
}

func (p *faultyPlane) holds(t *model.Table) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inForce == t && !p.broken
}

// tables is a source of ever new tables, as the compiler is.
type tables struct {
	mu   sync.Mutex
	last *model.Table
	wake chan struct{}
}

func (t *tables) latest() *model.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

func (t *tables) change(n int) *model.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	base := t.last
	if base == nil {
		base = model.NewTable()
	}
	e := base.Edit()
	id := model.PoolID{Name: fmt.Sprint(n), Proto: model.TCP}
	e.SetPool(&model.Pool{ID: id})
	e.SetFrontend(&model.Frontend{
		Key:    model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), Port: 80, Proto: model.TCP},
		Routes: [model.NumOrigins]model.Route{{Pool: id}, {Pool: id}, {Pool: id}},
	})
	t.last = e.Table()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return t.last
}

// startLoop runs a loop that compares unasked only if an edit says so.
func startLoop(t *testing.T, plane applier, edits ...func(*loop)) (*tables, chan struct{}, <-chan error) {
	t.Helper()
	source, drift := &tables{wake: make(chan struct{}, 1)}, make(chan struct{}, 1)
	l := &loop{
		plane: plane, table: source.latest, wake: source.wake, drift: drift, verify: func() time.Duration { return time.Hour },
		report: func(syncOutcome) {}, log: slog.New(slog.DiscardHandler),
	}
	for _, edit := range edits {
		edit(l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	t.Cleanup(cancel)
	return source, drift, ended
}

// comparesAlways has a loop compare unasked, and again as soon as that is done.
func comparesAlways(l *loop) { l.verify = func() time.Duration { return time.Millisecond } }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for late := range wait.Tries(30 * time.Second) {
		if ok() {
			break
		}
		if late {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func TestLoopReachesTheLastTableInSpiteOfFaults(t *testing.T) {
	plane := &faultyPlane{rng: rand.New(rand.NewPCG(3, 4))}
	source, _, _ := startLoop(t, plane)
	var last *model.Table
	for n := range 200 {
		last = source.change(n)
		if n%20 == 0 {
			eventually(t, "table in force", func() bool { return plane.holds(last) })
		}
	}
	eventually(t, "last table in force", func() bool { return plane.holds(last) })
}

func TestLoopAppliesNothingBeforeTheFirstTable(t *testing.T) {
	plane := &faultyPlane{rng: rand.New(rand.NewPCG(5, 6))}
	source, drift, _ := startLoop(t, plane)
	source.wake <- struct{}{}
	drift <- struct{}{}
	eventually(t, "wake and drift consumed", func() bool { return len(source.wake) == 0 && len(drift) == 0 })
	plane.mu.Lock()
	defer plane.mu.Unlock()
	if plane.applies != 0 {
		t.Errorf("%d syncs without a table", plane.applies)
	}
}

func TestLoopRepairsDrift(t *testing.T) {
	plane := &faultyPlane{rng: rand.New(rand.NewPCG(7, 8))}
	source, drift, _ := startLoop(t, plane)
	table := source.change(1)
	eventually(t, "table in force", func() bool { return plane.holds(table) })
	plane.mu.Lock()
	plane.broken = true
	plane.mu.Unlock()
	drift <- struct{}{}
	eventually(t, "repaired", func() bool { return plane.holds(table) })
}

func TestLoopEndsWhereTheMachineCannot(t *testing.T) {
	plane := &faultyPlane{rng: rand.New(rand.NewPCG(9, 10)), missing: true}
	source, _, ended := startLoop(t, plane)
	source.change(1)
	select {
	case err := <-ended:
		if !kernel.IsMissing(err) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the loop goes on")
	}
}

// TestLoopOutlivesWhatIsMissing: what is missing after it has worked comes again.
func TestLoopOutlivesWhatIsMissing(t *testing.T) {
	plane := &faultyPlane{rng: rand.New(rand.NewPCG(9, 11))}
	source, _, ended := startLoop(t, plane)
	first := source.change(1)
	eventually(t, "table in force", func() bool { return plane.holds(first) })
	set := func(missing bool) {
		plane.mu.Lock()
		defer plane.mu.Unlock()
		plane.missing = missing
	}
	tried := func() int {
		plane.mu.Lock()
		defer plane.mu.Unlock()
		return plane.applies
	}
	set(true)
	before := tried()
	second := source.change(2)
	eventually(t, "tried", func() bool { return tried() > before })
	set(false)
	eventually(t, "table in force", func() bool { return plane.holds(second) })
	select {
	case err := <-ended:
		t.Errorf("the loop ended: %v", err)
	default:
	}
}

func TestLoopComparesUnasked(t *testing.T) {
	plane := &faultyPlane{rng: rand.New(rand.NewPCG(11, 12))}
	var compared atomic.Int32
	source, _, _ := startLoop(t, plane, func(l *loop) {
		l.verify = func() time.Duration { compared.Add(1); return time.Millisecond }
	})
	eventually(t, "compared without a table, which must not be the last time", func() bool { return compared.Load() > 3 })
	table := source.change(1)
	for range 3 {
		eventually(t, "table in force", func() bool { return plane.holds(table) })
		plane.mu.Lock()
		plane.broken = true
		plane.mu.Unlock()
	}
	eventually(t, "repaired unasked", func() bool { return plane.holds(table) })
}

// TestLoopPauses: changes that come within the pause after a sync are in force
// with the next one, which is one for all of them.
func TestLoopPauses(t *testing.T) {
	plane := &faultyPlane{rng: rand.New(rand.NewPCG(1, 1))}
	source := &tables{wake: make(chan struct{}, 1)}
	var mu sync.Mutex
	var began []time.Time
	const pause = 300 * time.Millisecond
	l := &loop{
		plane: plane, table: source.latest, wake: source.wake, verify: func() time.Duration { return time.Hour },
		pause: func() time.Duration { return pause }, log: slog.New(slog.DiscardHandler),
		report: func(r syncOutcome) {
			mu.Lock()
			defer mu.Unlock()
			if r.Err == nil && r.Verified == kernel.VerifyNothing {
				began = append(began, r.Began)
			}
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go l.run(ctx) //nolint:errcheck // ends with the test
	for step := range 3 {
		var last *model.Table
		for n := range 20 {
			last = source.change(100*step + n)
		}
		eventually(t, "the last change in force", func() bool { return plane.holds(last) })
	}
	mu.Lock()
	defer mu.Unlock()
	for i := 1; i < len(began); i++ {
		if apart := began[i].Sub(began[i-1]); apart < pause {
			t.Errorf("syncs %d and %d began %s apart", i, i+1, apart)
		}
	}
}

// checkedPlane is a plane that compares beside changes, when it is told to.
type checkedPlane struct {
	mu       sync.Mutex
	inForce  *model.Table
	checks   chan chan found // one for each Check under way, for its answer
	compared int             // syncs that compared with changes waiting
	trusted  int             // syncs that went by a check
}

func (p *checkedPlane) Apply(_ context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch verify {
	case kernel.VerifyAll:
		p.compared++
	case kernel.VerifyRest:
		p.trusted++
	}
	p.inForce = want
	return kernel.Result{}, nil
}

func (p *checkedPlane) Read(ctx context.Context, _ kernel.Query) (kernel.Reading, error) {
	answer := make(chan found)
	select {
	case p.checks <- answer:
		f := <-answer
		return kernel.Reading{Differences: f.differences}, f.err
	case <-ctx.Done():
		return kernel.Reading{}, ctx.Err()
	}
}

func (p *checkedPlane) seen() (t *model.Table, compared, trusted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inForce, p.compared, p.trusted
}

// TestLoopComparesBesideChanges: changes are in force while a comparison is under
// way. If all agrees, that is that. A difference is repaired at once, unless it may
// be such a change: then it is one if the next comparison finds it again.
func TestLoopComparesBesideChanges(t *testing.T) {
	plane := &checkedPlane{checks: make(chan chan found)}
	source, _, _ := startLoop(t, plane, comparesAlways)
	changes := 0
	change := func() {
		t.Helper()
		changes++
		table := source.change(changes)
		eventually(t, "change in force", func() bool { in, _, _ := plane.seen(); return in == table })
	}
	differ := func(what ...string) (f found) {
		f.differences = &kernel.Differences{}
		for _, text := range what {
			f.differences.Add(text)
		}
		return f
	}
	change()
	_, before, _ := plane.seen() // a comparison before there was a table
	answer := <-plane.checks
	for n, c := range []struct {
		change            bool
		found             found
		compared, trusted int
	}{
		{false, differ(), 0, 1},
		{true, differ(), 0, 2},
		{false, differ("a"), 1, 2},
		{false, found{differences: &kernel.Differences{Spare: true}}, 2, 2},
		{true, found{differences: &kernel.Differences{Spare: true}}, 2, 3},
		{true, differ("a", "b"), 2, 3}, // a change may be among it
		{true, differ("b", "c"), 2, 3}, // b may be
		{true, differ("d"), 2, 4},      // no, all were
		{true, differ("a"), 2, 4},
		{false, differ("a"), 3, 4},
		{true, found{err: errInjected}, 3, 4},
		{true, differ("a"), 3, 4},
		{true, differ("b"), 3, 5},
		{false, found{err: errInjected}, 4, 5},
		{true, found{}, 5, 5},
	} {
		if c.change {
			change()
		}
		answer <- c.found
		answer = <-plane.checks // what follows from the last one is done
		if _, compared, trusted := plane.seen(); compared-before != c.compared || trusted != c.trusted {
			t.Errorf("after %d: compared %d times with changes waiting and went by a check %d times, want %d and %d", n, compared-before, trusted, c.compared, c.trusted)
		}
	}
	for range mostUndecided + 1 {
		change()
		answer <- differ("a")
		answer = <-plane.checks
	}
	if _, compared, trusted := plane.seen(); compared-before != 6 || trusted != 5 {
		t.Errorf("what always differs: compared %d times with changes waiting, want 6; %d syncs went by a check, want 5", compared-before, trusted)
	}
}

// TestChangeOfNothing: a change that alters nothing on this node isn't waited for.
func TestChangeOfNothing(t *testing.T) {
	plane, health := &faultyPlane{rng: rand.New(rand.NewPCG(1, 2))}, newHealth(time.Hour)
	waits := func() bool {
		health.mu.Lock()
		defer health.mu.Unlock()
		return !health.queued.IsZero()
	}
	source, _, _ := startLoop(t, plane, func(l *loop) {
		l.report, l.unchanged = health.syncEnded, func(_ *model.Table, before time.Time) { health.unchanged(before) }
	})
	health.changed()
	table := source.change(1)
	eventually(t, "table in force", func() bool { return plane.holds(table) && !waits() })
	health.changed()
	source.wake <- struct{}{}
	eventually(t, "a change of nothing is waited for no more", func() bool { return !waits() })
}
