package realcluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Load is connections of one client: new ones at a rate, and some that are kept.
type Load struct {
	stop context.CancelFunc
	wait sync.WaitGroup

	mu     sync.Mutex
	counts Counts
}

// Counts are what became of connections.
type Counts struct {
	New, Kept int
	// Failed and Broken count reasons. Samples has when the first of each were.
	Failed, Broken map[string]int
	Samples        []string
}

// kept is how many connections are kept; each asks ten times a second.
const kept = 10

// StartLoad begins connections to an address.
func StartLoad(to string, perSecond int) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{stop: cancel, counts: Counts{Failed: map[string]int{}, Broken: map[string]int{}}}
	l.wait.Go(func() { l.begin(ctx, to, perSecond) })
	for range kept {
		l.wait.Go(func() { l.keep(ctx, to) })
	}
	return l
}

// Stop ends the connections and says what became of them.
func (l *Load) Stop() Counts {
	l.stop()
	l.wait.Wait()
	return l.counts
}

func (l *Load) begin(ctx context.Context, to string, perSecond int) {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.wait.Go(func() {
				begun := time.Now()
				a := Ask(TCP, to)
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.counts.New++; a.Failed != "" {
					l.failed(l.counts.Failed, "new", a.Failed, begun)
				}
			})
		}
	}
}

// failed counts, with the lock held.
func (l *Load) failed(reasons map[string]int, what, reason string, begun time.Time) {
	if reasons[reason]++; reasons[reason] <= 3 {
		l.counts.Samples = append(l.counts.Samples, fmt.Sprintf("%s %s %s", begun.Format("15:04:05.000"), what, reason))
	}
}

// keep asks over one connection until the end; a broken one is replaced.
func (l *Load) keep(ctx context.Context, to string) {
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", to)
		if err != nil {
			time.Sleep(100 * time.Millisecond) // it is the new ones' to count
			continue
		}
		l.mu.Lock()
		l.counts.Kept++
		l.mu.Unlock()
		err = converse(ctx, conn)
		_ = conn.Close() // broken, or at the end
		if err != nil {
			l.mu.Lock()
			l.failed(l.counts.Broken, "kept", reason(err), time.Now())
			l.mu.Unlock()
		}
	}
}

func converse(ctx context.Context, conn net.Conn) error {
	in := bufio.NewReader(conn)
	for ctx.Err() == nil {
		if err := conn.SetDeadline(time.Now().Add(2 * timeout)); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, "who\n"); err != nil {
			return err
		}
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// String is one line: what failed of how many, and why.
func (c Counts) String() string {
	return fmt.Sprintf("%d of %d new failed%s, %d of %d kept broke%s",
		sum(c.Failed), c.New, list(c.Failed), sum(c.Broken), c.Kept, list(c.Broken))
}

func sum(reasons map[string]int) (n int) {
	for _, k := range reasons {
		n += k
	}
	return n
}

func list(reasons map[string]int) string {
	if len(reasons) == 0 {
		return ""
	}
	var texts []string
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		texts = append(texts, fmt.Sprintf("%s %d", r, reasons[r]))
	}
	return " (" + strings.Join(texts, ", ") + ")"
}
