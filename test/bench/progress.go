package bench

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/kube/join"
)

const (
	// barPeriod is how often a bar on a terminal is drawn anew, and linePeriod how often
	// there is a line anywhere else.
	barPeriod  = 200 * time.Millisecond
	linePeriod = time.Minute
	barWidth   = 30
)

// progress says how far a long part is: by a bar on a terminal, by a line a minute
// elsewhere. What takes less than that is done in silence.
type progress struct {
	out   io.Writer // nil says nothing
	bar   bool
	what  string
	total int
	began time.Time
	done  atomic.Int64
	quit  chan struct{}
	group sync.WaitGroup
}

// newProgress begins a part that has so many steps.
func newProgress(out io.Writer, what string, total int) *progress {
	p := &progress{out: out, what: what, total: total, began: time.Now(), quit: make(chan struct{})}
	if out == nil || total == 0 {
		return p
	}
	period := linePeriod
	if terminal, ok := out.(*os.File); ok && join.IsTerminal(terminal) {
		p.bar, period = true, barPeriod
	}
	p.group.Go(func() { p.tell(period) })
	return p
}

// step counts one step that is done.
func (p *progress) step() { p.done.Add(1) }

// end is called when all is done, or no more will be.
func (p *progress) end() {
	close(p.quit)
	p.group.Wait()
}

func (p *progress) tell(period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-p.quit:
			if p.bar { // leaves no line behind
				fmt.Fprint(p.out, "\r\x1b[K")
			}
			return
		case <-ticker.C:
			if p.bar {
				fmt.Fprint(p.out, "\r\x1b[K"+p.line())
			} else {
				fmt.Fprintln(p.out, p.line())
			}
		}
	}
}

// line says how many steps are done, how many a second, and how long the rest takes at
// that rate.
func (p *progress) line() string {
	done := int(p.done.Load())
	took := time.Since(p.began)
	rate := float64(done) / took.Seconds()
	text := fmt.Sprintf("%s: %d of %d (%d %%), %.0f/s", p.what, done, p.total, done*100/p.total, rate)
	if rate > 0 {
		left := time.Duration(float64(p.total-done) / rate * float64(time.Second))
		text += ", " + left.Round(time.Second).String() + " left"
	}
	if !p.bar {
		return text
	}
	full := barWidth * done / p.total
	return "[" + strings.Repeat("#", full) + strings.Repeat(" ", barWidth-full) + "] " + text
}
