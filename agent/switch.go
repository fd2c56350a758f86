package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// switcher is the plane that the loop drives: that of the mode in force. A new
// one takes its place once it holds a complete table, and only then is the old
// one removed; until then, and if it never does, the old one stays. So it is
// with what an earlier process, or kube-proxy, left of other modes.
type switcher struct {
	log   *slog.Logger
	kinds []dataplane.Kind
	renew chan struct{} // asks the loop for a sync
	drift chan struct{} // tells the loop that the objects in force were changed

	mu      sync.Mutex
	inForce *running
	change  *change // asked for, and neither made nor given up yet
	// wanted is what was last asked for, whatever came of it.
	wantedMode    string
	wantedOptions kernel.Options
	finished      *change   // made, but the old plane is still there
	lookAgain     bool      // other modes may have come back
	abandoned     []*change // superseded or withdrawn, and not closed yet

	// report writes an Event about this node: a reason and a message.
	report atomic.Pointer[func(reason, message string)]
	// leftovers are for the loop's goroutine alone.
	leftovers []*running
}

// running is a plane and its mode. The plane is nil until somebody has to look for what
// an earlier process left.
type running struct {
	mode    string
	why     string // that mode
	plane   dataplane.Plane
	options kernel.Options
	problem string // why it could not be removed, as was said
}

// change is a plane that shall take over.
type change struct {
	to       *running
	failures int
	outcome  chan error // has room for the one there is
}

// end tells the outcome, unless another was told before.
func (c *change) end(outcome error) {
	select {
	case c.outcome <- outcome:
	default:
	}
}

// switchTries is how often a new plane may fail, if not for good, before the old
// one stays for good, and switchPause the time after the first failure, which
// doubles with every other.
const (
	switchTries = 5
	switchPause = 100 * time.Millisecond
)

// errSuperseded answers a request for a change when the next one was asked for
// before it was made.
var errSuperseded = errors.New("another change was asked for before this one was complete")

// newSwitcher makes the plane of the mode that an agent starts in. What is there
// of all others is left over, if it is.
func newSwitcher(kinds []dataplane.Kind, mode string, options kernel.Options, log *slog.Logger) (*switcher, error) {
	s := &switcher{log: log, kinds: kinds, renew: make(chan struct{}, 1), drift: make(chan struct{}, 1)}
	first, err := s.make(mode, options)
	if err != nil {
		return nil, err
	}
	s.inForce = first
	s.wantedMode, s.wantedOptions = mode, options
	for _, k := range kinds {
		if k.Name != first.mode {
			s.leftovers = append(s.leftovers, &running{mode: k.Name, options: options})
		}
	}
	return s, nil
}

// make makes a plane. What it says of drift counts while it is in force.
func (s *switcher) make(mode string, options kernel.Options) (*running, error) {
	r := &running{options: options}
	options.Drift = func() {
		if s.current() == r {
			signal(s.drift)
		}
	}
	c, plane, err := choose(s.kinds, mode, options, s.log)
	r.mode, r.why, r.plane = c.mode, c.why, plane
	return r, err
}

func (s *switcher) current() *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inForce
}

func (s *switcher) unsupported() []kernel.Unsupported { return s.current().plane.Unsupported() }

// takesAddresses reports whether the plane that applies the next table has the kernel take
// addresses of Services for the node's own.
func (s *switcher) takesAddresses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kindOf(s.inForce.mode).TakesAddresses || s.change != nil && s.kindOf(s.change.to.mode).TakesAddresses
}

// kind is that of the mode in force.
func (s *switcher) kind() dataplane.Kind { return s.kindOf(s.current().mode) }

// kindOf is the kind of a mode that a plane was made of.
func (s *switcher) kindOf(mode string) dataplane.Kind {
	return s.kinds[slices.IndexFunc(s.kinds, func(k dataplane.Kind) bool { return k.Name == mode })]
}

// prepare has the plane in force do what it can before there is a table.
func (s *switcher) prepare(ctx context.Context) {
	if err := s.current().plane.Prepare(ctx, kernel.BeforeTable); err != nil && ctx.Err() == nil {
		s.log.Debug("the data plane is not prepared; its first sync will say why", "error", err)
	}
}

// to asks for another plane, or the same with other options, and waits until it
// is in force and the old one removed. An error says why the old one stays;
// with ctx done, the change is withdrawn if it isn't made yet.
func (s *switcher) to(ctx context.Context, mode string, options kernel.Options) error {
	next, err := s.make(mode, options)
	if err != nil {
		return err
	}
	c := &change{to: next, outcome: make(chan error, 1)}
	s.mu.Lock()
	superseded := s.change
	s.change = c
	s.mu.Unlock()
	if superseded != nil {
		superseded.end(errSuperseded)
		s.mu.Lock()
		s.abandoned = append(s.abandoned, superseded)
		s.mu.Unlock()
	}
	signal(s.renew)
	select {
	case err := <-c.outcome:
		return err
	case <-ctx.Done():
		if s.withdraw(c) {
			s.mu.Lock()
			s.abandoned = append(s.abandoned, c)
			s.mu.Unlock()
		}
		return ctx.Err()
	}
}

// withdraw forgets a change that is asked for, and reports whether it was.
func (s *switcher) withdraw(c *change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.change != c {
		return false
	}
	s.change = nil
	return true
}

// Apply has the plane in force apply the table, or a new one take its place.
func (s *switcher) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	s.mu.Lock()
	c := s.change
	s.mu.Unlock()
	if c != nil {
		result, err := c.to.plane.Apply(ctx, want, kernel.VerifyAll)
		if err == nil {
			s.took(c)
			return result, nil
		}
		if ctx.Err() != nil {
			return result, err
		}
		s.failed(ctx, c, err)
		verify = kernel.VerifyAll // the two may have met
	}
	return s.current().plane.Apply(ctx, want, verify)
}

// Read reads of the plane in force.
func (s *switcher) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return s.current().plane.Read(ctx, what)
}

// reader is the plane in force.
func (s *switcher) reader() metrics.PlaneReader { return s.current().plane }
