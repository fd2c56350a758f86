package native

import (
	"context"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// pacer sends an answer as fast as its rule says.
type pacer struct {
	rate  *model.Rate // nil is as fast as it goes
	begun time.Time
	sent  int64
}

func newPacer(r *model.Rate) *pacer { return &pacer{rate: r, begun: time.Now()} }

// most is how much is sent at a time, of n bytes at most.
func (p *pacer) most(n int) int {
	if p.rate == nil {
		return n
	}
	return int(min(int64(n), p.rate.PerSecond/4+1))
}

// wait waits until n more bytes may be sent.
func (p *pacer) wait(ctx context.Context, n int) error {
	if p.rate == nil {
		return nil
	}
	p.sent += int64(n)
	over := p.sent - p.rate.After
	due := p.begun.Add(time.Duration(float64(over) / float64(p.rate.PerSecond) * float64(time.Second)))
	if wait := time.Until(due); over <= 0 || wait <= 0 || pause(ctx, wait) {
		return nil
	}
	return ctx.Err()
}
