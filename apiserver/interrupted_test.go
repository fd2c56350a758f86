package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A server may be told to end at any moment of its start, and the next start
// finds everything as it should be: whatever it was about to do, the process of
// a server in `fairway server` has others to end after it.
func TestInterruptedWhileStarting(t *testing.T) {
	config := testConfig(t)
	interrupted := 0
	for wait := 200 * time.Millisecond; wait < 1500*time.Millisecond; wait += 200 * time.Millisecond {
		ctx, cancel := context.WithTimeout(within(t), wait)
		s, err := Start(ctx, config)
		cancel()
		switch {
		case err == nil:
			if err := s.Close(); err != nil {
				t.Errorf("after %v: %v", wait, err)
			}
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
			interrupted++
		default:
			t.Errorf("after %v: %v", wait, err)
		}
	}
	if interrupted == 0 {
		t.Error("no start was interrupted")
	}
	start(t, config)
}
