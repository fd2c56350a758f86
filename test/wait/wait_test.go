package wait

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTries: there is a last look when the time is over, and one that breaks is the last.
func TestTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, looks, late := time.Now(), 0, false
		for late = range Tries(time.Second) {
			looks++
		}
		if !late || looks < 20 || time.Since(begin) < time.Second || time.Since(begin) > time.Second+lastPause {
			t.Errorf("%d looks in %s, the last one late: %t", looks, time.Since(begin), late)
		}
		for late = range Tries(0) {
			looks = 0
		}
		if looks != 0 || !late {
			t.Error("no look without time")
		}
	})
}

// TestUntil: it ends as soon as it is so.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		Until(t, time.Minute, "two seconds have passed", func() bool { return time.Since(begin) >= 2*time.Second })
		if took := time.Since(begin); took > 2*time.Second+lastPause {
			t.Errorf("it took %s", took)
		}
	})
}
