package core

import (
	"testing"
	"time"
)

// TestAhead: a question counts for a while, for one claim, and its answer has time to come.
func TestAhead(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		asked time.Duration // before the claim; 0 for never
		left  int
		wait  time.Duration
	}{
		"never":      {0, probes, 0},
		"a moment":   {firstWait / 5, probes - 1, firstWait * 4 / 5},
		"long since": {firstWait * 3, probes - 1, 0},
		"too long":   {aheadFor, probes, 0},
	} {
		h := ahead{}
		if c.asked > 0 {
			h[vip] = now.Add(-c.asked)
		}
		if left, next := h.take(vip, now); left != c.left || next.Sub(now) != c.wait {
			t.Errorf("%s: %d questions left, after %v, want %d, after %v", name, left, next.Sub(now), c.left, c.wait)
		}
		if left, _ := h.take(vip, now); left != probes {
			t.Errorf("%s: the question counted for two claims", name)
		}
	}
}
