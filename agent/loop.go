package agent

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// loop keeps the kernel at what the latest table says. Changes that arrive
// while it works are merged into the next round, and so are those that come
// within the pause, if there is one.
type loop struct {
	plane  applier
	table  func() *model.Table         // the latest table; nil as long as there is none to trust
	wake   <-chan struct{}             // there may be a new table
	drift  <-chan struct{}             // somebody else changed the kernel's objects
	renew  <-chan struct{}             // somebody wants the kernel compared
	settle func(context.Context, bool) // told after rounds that succeeded, and whether they compared
	verify func() time.Duration        // how often to compare with the kernel unasked
	pause  func() time.Duration        // from one round's beginning to that of one for later changes; nil is none
	report func(round)                 // told of every round
	log    *slog.Logger
}

// applier is what the loop asks of a plane; see dataplane.Plane.
type applier interface {
	Apply(ctx context.Context, want *model.Table, verify bool) error
}

// round is one attempt to bring the kernel in step.
type round struct {
	Table    *model.Table
	Began    time.Time
	Took     time.Duration
	Verified bool // compared with the kernel,
	Checked  bool // which was done before, beside the loop
	Err      error
}

// retryBackoff is the pause after failed rounds: soon at first, since most
// failures pass, and never longer than an operator would wait.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 15 * time.Second}
}

// verifyShare bounds what comparing costs where reading back is dear
// (iptables needs seconds at 10,000 Services): a comparison is
// followed by this many times its own duration without another.
const verifyShare = 20

// driftLimit bounds what a fight with another program over our objects costs.
func driftLimit() *rate.Limiter { return rate.NewLimiter(rate.Every(time.Second), 5) }

// run works until ctx is done or the plane says that this machine can't do it.
func (l *loop) run(ctx context.Context) error {
	compare := time.NewTimer(l.verify())
	defer compare.Stop()
	backoff, fights := retryBackoff(), driftLimit()
	var again <-chan time.Time // set after a failure
	var held pause
	var last *model.Table
	var checks beside
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a comparison that is under way
	for {
		verify, checked := false, false
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			if again != nil || held.hold() { // the pause is for changes too
				continue
			}
		case <-held.over:
			if !held.end() {
				continue
			}
		case <-l.drift:
			if err := fights.Wait(ctx); err != nil {
				return nil
			}
			l.log.Warn("kernel objects were changed by somebody else; repairing them")
			verify = true
		case <-l.renew:
			verify = true
		case <-compare.C:
			if again == nil && checks.begin(ctx, l.plane, last) {
				continue
			}
			verify = true
		case f := <-checks.found:
			undecided, agrees := checks.conclude(f)
			if undecided {
				compare.Reset(max(min(undecidedPause, l.verify()), verifyShare*time.Since(checks.began)))
				continue
			}
			verify, checked = true, agrees
		case <-again:
			verify = true
		}
		table := l.table()
		if table == nil || table == last && !verify {
			if verify {
				compare.Reset(l.verify())
			}
			continue
		}
		again = nil
		began := time.Now()
		if checked {
			began = checks.began
		}
		held.begin(l.pause)
		checks.disturbed = true
		err := l.round(ctx, table, verify, checked)
		if verify {
			compare.Reset(max(l.verify(), verifyShare*time.Since(began)))
		}
		switch {
		case err == nil:
			last, backoff = table, retryBackoff()
		case ctx.Err() != nil:
			return nil
		case kernel.IsMissing(err):
			return err
		default:
			pause := backoff.Step()
			l.log.Error("programming failed; trying again", "error", err, "in", pause.Round(time.Millisecond))
			again = time.After(pause)
		}
	}
}

// round has the plane apply a table; with verify it compares with the kernel, or has
// checked it already.
func (l *loop) round(ctx context.Context, table *model.Table, verify, checked bool) error {
	r := round{Table: table, Began: time.Now(), Verified: verify, Checked: checked}
	if c, can := l.plane.(dataplane.Checker); can && checked {
		r.Err = c.ApplyChecked(ctx, table)
	} else {
		r.Err = l.plane.Apply(ctx, table, verify)
	}
	r.Took = time.Since(r.Began)
	l.report(r)
	if r.Err == nil && l.settle != nil {
		l.settle(ctx, verify)
	}
	return r.Err
}

// pause keeps rounds for changes apart, as kube-proxy's minSyncPeriod does.
type pause struct {
	over    <-chan time.Time // nil if there is no pause now
	changes bool             // came meanwhile
}

func (p *pause) begin(length func() time.Duration) {
	*p = pause{}
	if length == nil {
		return
	}
	if d := length(); d > 0 {
		p.over = time.After(d)
	}
}

// hold notes that a change came, and reports whether it has to wait.
func (p *pause) hold() bool {
	p.changes = p.over != nil
	return p.changes
}

// end reports whether a change has waited for it.
func (p *pause) end() bool {
	waited := p.changes
	*p = pause{}
	return waited
}
