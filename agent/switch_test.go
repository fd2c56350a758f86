package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// machine is a kernel in memory in which fake planes leave what they do.
type machine struct {
	mu      sync.Mutex
	holds   map[string]*model.Table // by mode: a whole table
	log     []string                // what was applied and removed, in order
	moves   []string                // how connections changed planes, and who is alone then
	applied map[string][]error      // by mode: what the next Applies end with
	removed map[string][]error
	unable  map[string]error     // by mode: why there can be no plane
	lacks   []kernel.Unsupported // of all modes
	result  kernel.Result        // of all Applies that succeed
}

func newMachine(leftovers ...string) *machine {
	m := &machine{holds: map[string]*model.Table{}, applied: map[string][]error{}, removed: map[string][]error{}, unable: map[string]error{}}
	for _, mode := range leftovers {
		m.holds[mode] = model.NewTable()
	}
	return m
}

func (m *machine) kinds() []dataplane.Kind {
	var kinds []dataplane.Kind
	for _, mode := range []string{"nftables", "iptables", "ipvs"} {
		real, err := dataplane.Find(mode)
		if err != nil {
			panic(err)
		}
		kinds = append(kinds, dataplane.Kind{Name: mode, Failures: real.Failures, New: func(o kernel.Options) (dataplane.Plane, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return &machinePlane{machine: m, mode: mode, options: o}, m.unable[mode]
		}})
	}
	return kinds
}

// history is what was done to any but empty planes.
func (m *machine) history() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

func (m *machine) there() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var modes []string
	for mode := range m.holds {
		modes = append(modes, mode)
	}
	slices.Sort(modes)
	return modes
}

func next(list map[string][]error, mode string) error {
	if len(list[mode]) == 0 {
		return nil
	}
	err := list[mode][0]
	list[mode] = list[mode][1:]
	return err
}

type machinePlane struct {
	*machine
	mode    string
	options kernel.Options
}

func (p *machinePlane) Apply(_ context.Context, want *model.Table, _ kernel.Verification) (kernel.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds[p.mode] = want // some of it at least
	if err := next(p.applied, p.mode); err != nil {
		p.log = append(p.log, "fail "+p.mode)
		return kernel.Result{}, err
	}
	p.log = append(p.log, "apply "+p.mode)
	return p.result, nil
}

func (p *machinePlane) Remove(context.Context, kernel.Removal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := next(p.removed, p.mode); err != nil {
		return err
	}
	if p.holds[p.mode] != nil {
		p.log = append(p.log, "remove "+p.mode)
	}
	delete(p.holds, p.mode)
	return nil
}

func (p *machinePlane) Prepare(_ context.Context, what kernel.Preparation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what == kernel.Alone {
		p.moves = append(p.moves, "alone "+p.mode)
	}
	return nil
}

// Connections are one, of planes that hold a table.
func (p *machinePlane) Connections() migrate.Connections { return machineConnections{p} }

type machineConnections struct{ *machinePlane }

func (c machineConnections) Leave(context.Context) ([]migrate.Source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds[c.mode] == nil {
		return nil, nil
	}
	return []migrate.Source{c}, nil
}

func (c machineConnections) note(step string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moves = append(c.moves, step+" "+c.mode)
	return nil
}

func (c machineConnections) Import(context.Context, []conntrack.Flow) error { return c.note("import") }
func (c machineConnections) Freeze(context.Context) error                   { return c.note("freeze") }
func (c machineConnections) Export(context.Context) ([]conntrack.Flow, error) {
	return nil, c.note("export")
}
func (c machineConnections) Release(context.Context, []conntrack.Flow) error { return nil }
func (c machineConnections) Thaw(context.Context, bool, []conntrack.Flow) error {
	return c.note("thaw")
}

func (p *machinePlane) Unsupported() []kernel.Unsupported { return p.lacks }
func (p *machinePlane) Close() error                      { return nil }
func (p *machinePlane) Read(context.Context, kernel.Query) (kernel.Reading, error) {
	return kernel.Reading{}, nil
}

// start has a loop drive a switcher.
func (m *machine) start(t *testing.T, mode string) (*switcher, *tables) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := newSwitcher(m.kinds(), mode, kernel.Options{}, log)
	if err != nil {
		t.Fatal(err)
	}
	source := &tables{wake: make(chan struct{}, 1)}
	l := &loop{
		plane: s, table: source.latest, wake: source.wake, drift: s.drift, renew: s.renew, removeLeftovers: s.removeLeftovers,
		verify: func() time.Duration { return time.Hour }, report: func(syncOutcome) {}, log: log,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := l.run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return s, source
}

func (m *machine) only(mode string) func() bool {
	return func() bool { return slices.Equal(m.there(), []string{mode}) }
}

func TestLeftoversGoAfterTheFirstCompleteTable(t *testing.T) {
	m := newMachine("iptables")
	m.applied["nftables"] = []error{errInjected, errInjected}
	_, source := m.start(t, "nftables")
	source.change(1)
	eventually(t, "only nftables", m.only("nftables"))
	if got, want := m.history(), []string{"fail nftables", "fail nftables", "apply nftables", "remove iptables"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLeftoversOfModesThatCannotRunAreNone(t *testing.T) {
	m := newMachine("iptables")
	m.unable["ipvs"] = &kernel.MissingError{What: "ip_vs"}
	m.removed["iptables"] = []error{errInjected}
	s, source := m.start(t, "nftables")
	source.change(1)
	eventually(t, "nftables applied", func() bool { return slices.Contains(m.history(), "apply nftables") })
	eventually(t, "only nftables, in the second attempt", func() bool {
		signal(s.drift) // a comparison
		return m.only("nftables")()
	})
}

// TestLeftoversThatCannotBeLookedAt: a mode that only this process may not run can
// have left something. That is reported once, and it goes when it can.
func TestLeftoversThatCannotBeLookedAt(t *testing.T) {
	m := newMachine("ipvs")
	m.unable["ipvs"] = &kernel.MissingError{What: "CAP_BPF", Err: fs.ErrPermission}
	s, source := m.start(t, "nftables")
	var reports atomic.Int32
	report := func(reason, _ string) {
		if reason == reasonLeftovers {
			reports.Add(1)
		}
	}
	s.report.Store(&report)
	source.change(1)
	eventually(t, "reported", func() bool { return reports.Load() == 1 })
	before := len(m.history())
	signal(s.drift)
	eventually(t, "compared", func() bool { return len(m.history()) > before })
	m.mu.Lock()
	delete(m.unable, "ipvs")
	m.mu.Unlock()
	eventually(t, "only nftables", func() bool {
		signal(s.drift)
		return m.only("nftables")()
	})
	if n := reports.Load(); n != 1 {
		t.Errorf("reported %d times", n)
	}
}

func TestSwitchRemovesTheOldPlaneLast(t *testing.T) {
	m := newMachine()
	m.applied["ipvs"] = []error{errInjected}
	s, source := m.start(t, "nftables")
	source.change(1)
	eventually(t, "only nftables", m.only("nftables"))
	if err := s.to(t.Context(), "ipvs", kernel.Options{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"apply nftables", "fail ipvs", "remove ipvs", "apply nftables", "apply ipvs", "remove nftables"}
	if got := m.history(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// The plane in force learns of the connections while they are frozen.
	want = []string{
		"alone nftables", "freeze ipvs", "export ipvs", "import nftables", "thaw ipvs",
		"freeze nftables", "export nftables", "import ipvs", "thaw nftables", "alone ipvs",
	}
	m.mu.Lock()
	if !slices.Equal(m.moves, want) {
		t.Errorf("connections changed planes by %v, want %v", m.moves, want)
	}
	m.mu.Unlock()
	if got := s.current().mode; got != "ipvs" {
		t.Errorf("mode %s", got)
	}
	table := source.change(2)
	eventually(t, "next table in force", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.holds["ipvs"] == table
	})
}

func TestSwitchKeepsTheOldPlaneIfTheNewCannotBeCompleted(t *testing.T) {
	missing := fmt.Errorf("apply: %w", &kernel.MissingError{What: "sets"})
	for name, failures := range map[string][]error{
		"for good":   {missing},
		"again":      slices.Repeat([]error{errInjected}, switchTries),
		"in the end": {errInjected, missing},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine()
			m.applied["ipvs"] = failures
			s, source := m.start(t, "nftables")
			source.change(1)
			err := s.to(t.Context(), "ipvs", kernel.Options{})
			if !errors.Is(err, failures[len(failures)-1]) {
				t.Errorf("got %v", err)
			}
			table := source.change(2)
			eventually(t, "nftables goes on", func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.holds["nftables"] == table && m.holds["ipvs"] == nil
			})
		})
	}
}

func TestSwitchSaysAtOnceWhatThisMachineLacks(t *testing.T) {
	m := newMachine()
	m.unable["ipvs"] = &kernel.MissingError{What: "ip_vs"}
	s, _ := m.start(t, "nftables")
	if err := s.to(t.Context(), "ipvs", kernel.Options{}); !kernel.IsMissing(err) {
		t.Errorf("got %v", err)
	}
	if err := s.to(t.Context(), "pigeons", kernel.Options{}); err == nil {
		t.Error("unknown mode accepted")
	}
}

func TestSwitchToOtherOptionsRemovesNothing(t *testing.T) {
	m := newMachine()
	s, source := m.start(t, "nftables")
	source.change(1)
	eventually(t, "only nftables", m.only("nftables"))
	if err := s.to(t.Context(), "nftables", kernel.Options{Scheduler: "rr"}); err != nil {
		t.Fatal(err)
	}
	if got, want := m.history(), []string{"apply nftables", "apply nftables"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := s.current().options.Scheduler; got != "rr" {
		t.Errorf("scheduler %q", got)
	}
}

func TestSwitchIsWithdrawn(t *testing.T) {
	m := newMachine()
	s, source := m.start(t, "nftables")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.to(ctx, "ipvs", kernel.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	outcome := make(chan error, 1)
	go func() { outcome <- s.to(t.Context(), "ipvs", kernel.Options{}) }()
	eventually(t, "first change asked for", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.change != nil
	})
	go func() {
		eventually(t, "superseded", func() bool { return errors.Is(<-outcome, errSuperseded) })
		source.change(1)
	}()
	if err := s.to(t.Context(), "iptables", kernel.Options{}); err != nil {
		t.Error(err)
	}
	if slices.Contains(m.history(), "apply ipvs") {
		t.Errorf("did %v", m.history())
	}
}

func TestOnlyThePlaneInForceReportsDrift(t *testing.T) {
	m := newMachine()
	s, source := m.start(t, "nftables")
	old := s.current().plane.(*machinePlane)
	source.change(1)
	// Else the sync for the table can be the one that changes planes, and what the
	// change asks for leads to another one while we look.
	eventually(t, "only nftables", m.only("nftables"))
	if err := s.to(t.Context(), "ipvs", kernel.Options{}); err != nil {
		t.Fatal(err)
	}
	before := len(m.history())
	old.options.Drift()
	if len(s.drift) > 0 || len(m.history()) != before {
		t.Error("the old plane's drift counts")
	}
	s.current().plane.(*machinePlane).options.Drift()
	eventually(t, "repaired", func() bool { return len(m.history()) > before })
}
