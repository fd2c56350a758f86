package tuning

import (
	"runtime/metrics"
	"testing"
	"time"
)

// TestReturnIsDue: memory goes back where there is enough of it, and not again and
// again.
func TestReturnIsDue(t *testing.T) {
	i, now := newIdleReturn(), time.Now()
	for _, step := range []struct {
		after time.Duration
		bytes uint64
		due   bool
		in    time.Duration
	}{
		{0, worthReturn - 1, false, 0}, {0, worthReturn, true, 0}, {time.Second, 1 << 30, false, returnPause - time.Second},
		{time.Second, worthReturn - 1, false, 0}, {returnPause, worthReturn, true, 0}, {returnPause + time.Second, 1 << 30, false, returnPause - time.Second},
	} {
		if due, in := i.isDue(now.Add(step.after), step.bytes); due != step.due || in != step.in {
			t.Errorf("%d bytes after %s: due %v, or in %s", step.bytes, step.after, due, in)
		}
	}
}

// TestIdleReturns: what a burst has left goes back to the system by itself.
func TestIdleReturns(t *testing.T) {
	for _, name := range []string{freeBytes, garbageBytes, liveBytes} {
		s := []metrics.Sample{{Name: name}}
		if metrics.Read(s); s[0].Value.Kind() != metrics.KindUint64 {
			t.Fatalf("the runtime has no %s", name)
		}
	}
	freed := make(chan struct{}, 1)
	i := &idleReturn{bytes: func() uint64 { return worthReturn }, free: func() { freed <- struct{}{} }}
	i.collected()
	select {
	case <-freed:
	case <-time.After(10 * idleAfter):
		t.Error("nothing is given back")
	}
}
