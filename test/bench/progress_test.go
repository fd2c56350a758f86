package bench

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress: where there is no terminal, a line a minute says how far it is, and what
// takes less than a minute is done in silence.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, "Services", 1000)
		time.Sleep(125 * time.Millisecond) // of the bubble's clock; no step is done as a line is written
		for range 500 {
			p.step()
			time.Sleep(250 * time.Millisecond) // of the bubble's clock
		}
		p.end()
		want := "Services: 240 of 1000 (24 %), 4/s, 3m10s left\nServices: 480 of 1000 (48 %), 4/s, 2m10s left\n"
		if got := out.String(); got != want {
			t.Errorf("it says\n%s, want\n%s", got, want)
		}
		out.Reset()
		p = newProgress(&out, "slices", 10)
		p.step()
		time.Sleep(59 * time.Second) // of the bubble's clock
		p.end()
		if out.Len() > 0 {
			t.Errorf("a short part says %q", out.String())
		}
	})
}

// TestProgressBar: the bar is as long as what is done.
func TestProgressBar(t *testing.T) {
	for done, full := range map[int64]int{0: 0, 500: barWidth / 2, 1000: barWidth} {
		p := &progress{bar: true, what: "Services", total: 1000, began: time.Now().Add(-time.Second)}
		p.done.Store(done)
		if got := strings.Count(p.line(), "#"); got != full {
			t.Errorf("%d of 1000 is %q", done, p.line())
		}
	}
}
