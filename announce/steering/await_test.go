package steering

import (
	"testing"
	"time"
)

// TestAwait: who waits for other nodes goes on waiting while they get on, and not for one that
// doesn't.
func TestAwait(t *testing.T) {
	const progressTimeout = 100 * time.Millisecond
	began, left := time.Now(), 0
	await(t.Context(), progressTimeout, func() int {
		left = 20 - int(time.Since(began)/(progressTimeout/5))
		return max(0, left)
	})
	if left > 0 {
		t.Errorf("%d nodes were about to be prepared", left)
	}
	calls := 0
	await(t.Context(), progressTimeout, func() int { calls++; return 1 })
	if calls < 2 {
		t.Errorf("looked %d times", calls)
	}
}
