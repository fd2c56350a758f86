package agent

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// loop keeps the kernel at what the latest table says. Changes that arrive
// while it works are merged into the next sync, and so are those that come
// within the pause, if there is one.
type loop struct {
	plane           applier
	table           func() *model.Table         // the latest table; nil as long as there is none to trust
	wake            <-chan struct{}             // there may be a new table
	drift           <-chan struct{}             // somebody else changed the kernel's objects
	renew           <-chan struct{}             // somebody wants the kernel compared
	removeLeftovers func(context.Context, bool) // told after syncs that succeeded, and whether they compared
	verify          func() time.Duration        // how often to compare with the kernel unasked
	pause           func() time.Duration        // from one sync's beginning to that of one for later changes; nil is none
	report          func(syncOutcome)           // told of every sync
	// unchanged is told that changes from before a time altered nothing.
	unchanged func(*model.Table, time.Time)
	log       *slog.Logger
}

// applier is what the loop asks of a plane; see dataplane.Plane.
type applier interface {
	metrics.PlaneReader
	Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error)
}

// syncOutcome is how one attempt ended to bring the kernel in step.
type syncOutcome struct {
	Table    *model.Table
	Began    time.Time // changes from before are in the table
	Took     time.Duration
	Verified kernel.Verification
	Drifted  bool // somebody else had changed the kernel's objects
	Result   kernel.Result
	Err      error
}

// retryBackoff is the pause after failed syncs: soon at first, since most
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

// run works until ctx is done or, at the start, the plane says that this machine can't do it.
func (l *loop) run(ctx context.Context) error {
	compare := time.NewTimer(l.verify())
	defer compare.Stop()
	backoff, driftLimiter := retryBackoff(), driftLimit()
	var again <-chan time.Time // set after a failure
	var pausing pause
	var last *model.Table
	var checks backgroundCheck
	drifted := false // and not yet repaired
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a comparison that is under way
	for {
		verify := kernel.VerifyNothing
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			if again != nil || pausing.hold() { // the pause is for changes too
				continue
			}
		case <-pausing.over:
			if !pausing.end() {
				continue
			}
		case <-l.drift:
			if err := driftLimiter.Wait(ctx); err != nil {
				return nil
			}
			verify, drifted = kernel.VerifyAll, true
		case <-l.renew:
			verify = kernel.VerifyAll
		case <-compare.C:
			if again == nil && checks.begin(ctx, l.plane, last) {
				continue
			}
			verify = kernel.VerifyAll
		case f := <-checks.found:
			undecided, agrees := checks.conclude(f)
			if undecided {
				compare.Reset(max(min(undecidedPause, l.verify()), verifyShare*time.Since(checks.began)))
				continue
			}
			if verify = kernel.VerifyAll; agrees {
				verify = kernel.VerifyRest
			}
		case <-again:
			verify = kernel.VerifyAll
		}
		began := time.Now() // what comes after this may not be in the table
		table := l.table()
		if table == nil || table == last && verify == kernel.VerifyNothing {
			if table != nil && l.unchanged != nil {
				l.unchanged(table, began)
			}
			if verify != kernel.VerifyNothing {
				compare.Reset(l.verify())
			}
			continue
		}
		again = nil
		pausing.begin(l.pause)
		checks.disturbed = true
		err := l.sync(ctx, table, began, verify, drifted)
		if verify != kernel.VerifyNothing {
			if verify == kernel.VerifyRest {
				began = checks.began
			}
			compare.Reset(max(l.verify(), verifyShare*time.Since(began)))
		}
		switch {
		case err == nil:
			last, backoff, drifted = table, retryBackoff(), false
		case ctx.Err() != nil:
			return nil
		case kernel.IsMissing(err) && last == nil: // what has worked isn't missing; it comes again
			return err
		default:
			pause := backoff.Step()
			l.log.Error("programming failed; trying again", "error", err, "retry-in", pause.Round(time.Millisecond))
			again = time.After(pause)
		}
	}
}

// sync has the plane apply a table. drifted says that it repairs what somebody
// else changed.
func (l *loop) sync(ctx context.Context, table *model.Table, began time.Time, verify kernel.Verification, drifted bool) error {
	r := syncOutcome{Table: table, Began: began, Verified: verify, Drifted: drifted}
	started := time.Now()
	r.Result, r.Err = l.plane.Apply(ctx, table, verify)
	r.Took = time.Since(started)
	l.report(r)
	if r.Err == nil && l.removeLeftovers != nil {
		l.removeLeftovers(ctx, verify != kernel.VerifyNothing)
	}
	return r.Err
}

// pause keeps syncs for changes apart, as kube-proxy's minSyncPeriod does.
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
