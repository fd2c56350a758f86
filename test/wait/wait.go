// Package wait is how tests wait: for the thing itself, never for a time that should do.
package wait

import (
	"context"
	"iter"
	"testing"
	"time"
)

// The pause between two looks begins short and grows, so that waiting for long costs little.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Tries has a test look again and again. What it yields is false until the time is over, and
// true once then, for the last look: the loop ends with it.
//
//	for late := range wait.Tries(time.Minute) {
//		if err := ask(); err == nil {
//			break
//		} else if late {
//			t.Fatal(err)
//		}
//	}
func Tries(atMost time.Duration) iter.Seq[bool] {
	return func(yield func(bool) bool) {
		pause := firstPause
		for deadline := time.Now().Add(atMost); time.Now().Before(deadline); {
			if !yield(false) {
				return
			}
			time.Sleep(pause)
			pause = min(2*pause, lastPause)
		}
		yield(true)
	}
}

// Every yields at once, and then each time a period is over, until ctx is done: a rate, as
// of a client that asks all the time. Who takes longer than the period is called again at once.
func Every(ctx context.Context, period time.Duration) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for ctx.Err() == nil && yield(struct{}{}) {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}
}

// Until waits until something is so; the test fails if it isn't in time.
func Until(t testing.TB, atMost time.Duration, what string, so func() bool) {
	t.Helper()
	for late := range Tries(atMost) {
		if so() {
			return
		}
		if late {
			t.Fatalf("not within %s: %s", atMost, what)
		}
	}
}
