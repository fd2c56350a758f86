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
	}{
		{0, worthReturn - 1, false}, {0, worthReturn, true}, {time.Second, 1 << 30, false},
		{returnPause, worthReturn, true}, {returnPause + time.Second, 1 << 30, false},
	} {
		if due := i.isDue(now.Add(step.after), step.bytes); due != step.due {
			t.Errorf("%d bytes after %s: due %v", step.bytes, step.after, due)
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
	i := &idleReturn{free: func() { freed <- struct{}{} }}
	burst := make([]byte, 2*worthReturn) // garbage from here on
	burst[0] = 1
	i.collected()
	select {
	case <-freed:
	case <-time.After(10 * idleAfter):
		t.Errorf("nothing is given back of %d bytes", returnable())
	}
}
