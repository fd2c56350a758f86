package conntrack

import (
	"context"
	"sync"
	"time"
)

const (
	// pauseAfter the last change a sweep that can wait is run, and at the latest mostAfter
	// the first.
	pauseAfter = 50 * time.Millisecond
	mostAfter  = 4 * pauseAfter
)

// Sweeper runs a plane's sweeps. One of what only came can wait for a moment: for each, the
// kernel walks through a table that all network namespaces share, which takes longer than to
// put a new Service in force, and the next change had to wait for it.
type Sweeper struct {
	Later bool // what can wait does
	Tell  func(entries int, took time.Duration)

	carryOut func(context.Context, *Sweep) error // for tests

	mu      sync.Mutex
	waiting *Sweep
	failed  bool
	since   time.Time
	timer   *time.Timer
}

// Run runs a sweep, or has it run in a moment. Nil is none. What has failed meanwhile is
// run again, and fails this time here.
func (s *Sweeper) Run(ctx context.Context, sweep *Sweep) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sweep == nil && !s.failed {
		return nil
	}
	if sweep != nil {
		s.waiting = sweep.after(s.waiting)
	}
	if s.Later && !s.failed && !s.waiting.isUrgent() {
		s.postpone()
		return nil
	}
	return s.run(ctx)
}

func (s *Sweeper) postpone() {
	now := time.Now()
	if s.timer == nil {
		s.since = now
		s.timer = time.AfterFunc(pauseAfter, s.runLate)
		return
	}
	s.timer.Reset(min(pauseAfter, max(0, mostAfter-now.Sub(s.since))))
}

func (s *Sweeper) runLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = s.run(context.Background()) != nil // which the next one tells
}

func (s *Sweeper) run(ctx context.Context) error {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.waiting == nil {
		return nil
	}
	carryOut := s.carryOut
	if carryOut == nil {
		carryOut = func(ctx context.Context, sweep *Sweep) error { return sweep.RunAndTell(ctx, s.Tell) }
	}
	if err := carryOut(ctx, s.waiting); err != nil {
		return err
	}
	s.waiting, s.failed = nil, false
	return nil
}

// Close runs what waits.
func (s *Sweeper) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run(context.Background())
}
