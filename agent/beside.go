package agent

import (
	"context"
	"errors"
	"time"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// beside compares the kernel with a table beside the loop, so that changes don't
// wait for it. What differs may be a change, if a round ran meanwhile: then what
// the next comparison doesn't find again was one. If that doesn't tell them apart,
// changes have to wait for a comparison once.
type beside struct {
	found     chan found // nil if nothing is under way
	began     time.Time
	disturbed bool                // a round has run since
	suspects  *kernel.Differences // what differed in every comparison so far; nil if there was none
	tries     int                 // that were undecided
}

// found is what a comparison came to.
type found struct {
	differences kernel.Differences
	err         error
}

// The pause after a comparison that doesn't tell, and how many of them may be so.
const (
	undecidedPause = 5 * time.Second
	mostUndecided  = 5
)

// begin starts comparing with what was last in force, unless that is under way. It
// reports whether it can.
func (b *beside) begin(ctx context.Context, plane applier, last *model.Table) bool {
	c, can := plane.(dataplane.Checker)
	if !can || last == nil {
		return false
	}
	if b.found != nil {
		return true
	}
	end := make(chan found, 1)
	b.found, b.began, b.disturbed = end, time.Now(), false
	go func() {
		differences, err := c.Check(ctx, last)
		end <- found{differences, err}
	}()
	return true
}

// conclude takes in what was found: that all agrees, or doesn't, or, undecided, that
// it takes another comparison to tell.
func (b *beside) conclude(f found) (undecided, agrees bool) {
	b.found = nil
	switch {
	case !b.disturbed || b.tries == mostUndecided || errors.Is(f.err, errors.ErrUnsupported):
		agrees = f.err == nil && len(f.differences.Found) == 0 && !f.differences.Spare
	case f.err != nil:
		undecided = true
	default:
		if b.suspects == nil {
			b.suspects = &f.differences
		}
		b.suspects.Keep(f.differences)
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
