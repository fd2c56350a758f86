package check

import (
	"container/heap"
	"context"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Scheduler asks many endpoints again and again. All share one timer; those that
// are due within a few milliseconds are asked together, and goroutines are as
// many as questions are under way, with a few more that wait. First questions are spread over the interval, so
// that ten thousand endpoints are never asked at once.
type Scheduler[K comparable] struct {
	probe  func(context.Context, Target) (Result, error)
	report func(K, Verdict)
	idle   atomic.Int32 // workers that wait for work

	mu      sync.Mutex
	entries map[K]*entry[K]
	queue   dueQueue[K]
	waiting waitingLines[K] // due, and without a place
	places  places
	wake    chan struct{}
	seed    maphash.Seed

	counts [Wrong + 1]atomic.Uint64
}

// Verdict is what a series of answers amounts to.
type Verdict struct {
	Health Health
	Reason string
}

// entry is one endpoint. The scheduler's lock guards it.
type entry[K comparable] struct {
	key    K
	target Target
	state  State
	due    time.Time
	index  int // in the queue; -1 while it waits, is asked or is removed
	gone   bool
	holds  Tenant // whose place it has while it is asked
}

// atOnce bounds how many questions are under way: each is a socket. Where all
// endpoints are silent, this is what 8,000 of them take.
const atOnce = 4096

// idleWorkers is how many goroutines wait for work at most: ten thousand
// endpoints take some thirty at once when they answer.
const idleWorkers = 64

// together is how long a question may wait for others that are due.
const together = 5 * time.Millisecond

// NewScheduler returns a scheduler without endpoints that asks with probe.
// It calls report, from any goroutine, whenever the health of an endpoint
// changes. An error of probe says that this machine couldn't ask.
func NewScheduler[K comparable](probe func(context.Context, Target) (Result, error), report func(K, Verdict)) *Scheduler[K] {
	return &Scheduler[K]{
		probe: probe, report: report, places: newPlaces(atOnce),
		waiting: waitingLines[K]{lines: map[Tenant][]*entry[K]{}},
		entries: map[K]*entry[K]{}, wake: make(chan struct{}, 1), seed: maphash.MakeSeed(),
	}
}

// Set adds an endpoint, or changes how it is asked. What was known of it stays
// known; known is where a new one begins.
func (s *Scheduler[K]) Set(key K, target Target, known Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e != nil {
		sooner := target.Spec.Interval < e.target.Spec.Interval
		e.target = target
		if sooner && e.index >= 0 {
			e.due = time.Now().Add(s.offset(key, target.Spec.Interval))
			heap.Fix(&s.queue, e.index)
			s.signal()
		}
		return
	}
	e = &entry[K]{key: key, target: target, state: State{Health: known}}
	e.due = time.Now().Add(s.offset(key, min(target.Spec.Interval, DefaultInterval)))
	s.entries[key] = e
	heap.Push(&s.queue, e)
	if e.index == 0 {
		s.signal()
	}
}

// offset spreads endpoints over an interval.
func (s *Scheduler[K]) offset(key K, interval time.Duration) time.Duration {
	return time.Duration(maphash.Comparable(s.seed, key) % uint64(interval))
}

// Remove ends the questions to an endpoint; nothing is reported of it any more.
func (s *Scheduler[K]) Remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		e.gone = true
		delete(s.entries, key)
		if e.index >= 0 {
			heap.Remove(&s.queue, e.index)
		}
	}
}

// Known returns how many endpoints are known to be of each health.
func (s *Scheduler[K]) Known() (count [Unhealthy + 1]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		count[e.state.Health]++
	}
	return count
}

// Asked returns how many questions ended with an outcome.
func (s *Scheduler[K]) Asked(o Outcome) uint64 { return s.counts[o].Load() }

// Run asks until ctx is done and the last question has ended.
func (s *Scheduler[K]) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	work := make(chan *entry[K])
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		due, next := s.take(time.Now())
		for _, e := range due {
			select {
			case <-ctx.Done():
				return
			case work <- e: // one that has asked before, and has a stack large enough
			default:
				asking.Go(func() { s.worker(ctx, e, work) })
			}
		}
		timer.Reset(next)
	}
}

// worker asks one endpoint after the other. It ends when enough others wait for work.
func (s *Scheduler[K]) worker(ctx context.Context, e *entry[K], work <-chan *entry[K]) {
	for {
		s.ask(ctx, e)
		if s.idle.Add(1) > idleWorkers {
			s.idle.Add(-1)
			return
		}
		select {
		case <-ctx.Done():
			return
		case e = <-work:
			s.idle.Add(-1)
		}
	}
}

// take removes the endpoints that are due from the queue, as far as there is a
// place for them, and says when the next one is due.
func (s *Scheduler[K]) take(now time.Time) (due []*entry[K], next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 && s.queue[0].due.Sub(now) <= 0 {
		e, _ := heap.Pop(&s.queue).(*entry[K])
		s.waiting.add(e)
	}
	due = s.waiting.place(&s.places)
	if len(s.queue) == 0 {
		return due, time.Hour
	}
	return due, max(together, s.queue[0].due.Sub(now))
}

// ask asks one endpoint once and puts it back into the queue.
func (s *Scheduler[K]) ask(ctx context.Context, e *entry[K]) {
	s.mu.Lock()
	target := e.target
	s.mu.Unlock()
	result, err := s.probe(ctx, target)
	now := time.Now()
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	if s.places.give(e.holds); len(s.waiting.order) > 0 {
		s.signal()
	}
	if e.gone {
		s.mu.Unlock()
		return
	}
	changed := false
	if err == nil {
		s.counts[result.Outcome].Add(1)
		changed = e.state.Observe(result, target.Spec, now)
	}
	verdict := Verdict{Health: e.state.Health, Reason: e.state.Reason}
	e.due = s.following(e, now)
	heap.Push(&s.queue, e)
	if e.index == 0 {
		s.signal()
	}
	s.mu.Unlock()
	if changed {
		s.report(e.key, verdict)
	}
}

// following is when an endpoint is asked next: an interval after it was last
// due, give or take a little, so that nodes that ask the same don't do it in step.
func (s *Scheduler[K]) following(e *entry[K], now time.Time) time.Time {
	interval := e.target.Spec.Interval
	next := e.due.Add(interval - interval/40 + rand.N(interval/20))
	if next.Before(now) {
		return now.Add(rand.N(interval / 10))
	}
	return next
}

func (s *Scheduler[K]) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
