package agent

import (
	"context"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// backgroundCheck compares the kernel with a table while the loop goes on, so that
// changes don't wait for it. If a sync ran meanwhile, a difference may only be that
// sync's change. So the check is repeated: a difference that the next check doesn't find
// was a change. After several checks without a clear result, the loop itself compares
// once, and changes wait for that.
type backgroundCheck struct {
	found     chan found // nil if nothing is under way
	began     time.Time
	disturbed bool                // a sync has run since
	suspects  *kernel.Differences // what differed in every comparison so far; nil if there was none
	tries     int                 // that were undecided
}

// found is what a comparison came to.
type found struct {
	differences *kernel.Differences // nil if the plane can't tell
	err         error
}

// The pause after a comparison that doesn't tell, and how many of them may be so.
const (
	undecidedPause = 5 * time.Second
	mostUndecided  = 5
)

// begin starts comparing with what was last in force, unless that is under way. It
// reports whether it can.
func (b *backgroundCheck) begin(ctx context.Context, plane applier, last *model.Table) bool {
	if last == nil {
		return false
	}
	if b.found != nil {
		return true
	}
	end := make(chan found, 1)
	b.found, b.began, b.disturbed = end, time.Now(), false
	go func() {
		there, err := plane.Read(ctx, kernel.Query{Compare: last})
		end <- found{there.Differences, err}
	}()
	return true
}

// conclude takes in what was found: that all agrees, or doesn't, or, undecided, that
// it takes another comparison to tell.
func (b *backgroundCheck) conclude(f found) (undecided, agrees bool) {
	b.found = nil
	switch {
	case !b.disturbed || b.tries == mostUndecided || f.err == nil && f.differences == nil:
		agrees = f.err == nil && f.differences != nil && len(f.differences.Found) == 0 && !f.differences.Spare
	case f.err != nil:
		undecided = true
	default:
		if b.suspects == nil {
			b.suspects = f.differences
		}
		b.suspects.Keep(*f.differences)
		agrees = len(b.suspects.Found) == 0
		undecided = !agrees
	}
	if undecided {
		b.tries++
	} else {
		b.suspects, b.tries = nil, 0
	}
	return undecided, agrees
}
