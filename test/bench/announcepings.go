package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/internal/netns"
)

const (
	// pingRate is how many questions all connections ask in a second, once each has
	// asked in the last second: two cores are client, router, nodes and endpoints.
	pingRate = 1000
	// pingTimeout without an answer makes a connection a lost one: TCP has sent the
	// question four times by then.
	pingTimeout = 5 * time.Second
	pingDialers = 16 // who connect at once
)

// pings are connections from a host that ask and are answered all the time.
type pings struct {
	ns    *netns.NS
	to    netip.AddrPort
	list  []*ping
	every time.Duration // how often each asks
}

// ping is one of them.
type ping struct {
	conn     net.Conn
	answered atomic.Int64 // when, in nanoseconds since 1970
	done     chan struct{}
	err      error // why it ended, once done is closed
}

// fill replaces the connections that were lost, and makes more until there are n.
func (p *pings) fill(n int) error {
	var alive []*ping
	for _, c := range p.list {
		if !c.isLost() {
			alive = append(alive, c)
		}
	}
	p.list = alive
	missing := n - len(alive)
	p.every = max(time.Second, time.Duration(n)*time.Second/pingRate)
	made := make(chan *ping, max(0, missing))
	errs := make(chan error, pingDialers)
	var left atomic.Int64
	left.Store(int64(missing))
	var dialers sync.WaitGroup
	for range pingDialers {
		dialers.Go(func() {
			errs <- p.ns.Do(func() error {
				for left.Add(-1) >= 0 {
					conn, err := net.DialTimeout("tcp", p.to.String(), pingTimeout)
					if err != nil {
						return err
					}
					made <- newPing(conn, p.every)
				}
				return nil
			})
		})
	}
	dialers.Wait()
	close(made)
	close(errs)
	for c := range made {
		p.list = append(p.list, c)
	}
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("connect to %s: %w", p.to, err)
	}
	return nil
}

func newPing(conn net.Conn, every time.Duration) *ping {
	c := &ping{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = errors.Join(c.run(every), conn.Close())
	}()
	return c
}

// run asks until something goes wrong.
func (c *ping) run(every time.Duration) error {
	time.Sleep(rand.N(every))
	answers := bufio.NewReaderSize(c.conn, 128)
	for {
		if err := c.conn.SetDeadline(time.Now().Add(pingTimeout)); err != nil {
			return err
		}
		if _, err := io.WriteString(c.conn, "x\n"); err != nil {
			return err
		}
		if _, err := answers.ReadSlice('\n'); err != nil {
			return err
		}
		c.answered.Store(time.Now().UnixNano())
		time.Sleep(every)
	}
}

func (c *ping) isLost() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// areBroken reports whether any was lost.
func (p *pings) areBroken() bool { return slices.ContainsFunc(p.list, (*ping).isLost) }

// losses are connections that ended: that were reset, or never answered again.
type losses struct{ reset, silent int }

func (l losses) all() int { return l.reset + l.silent }

// check waits until each connection has been answered since a time, or is lost.
func (p *pings) check(ctx context.Context, since time.Time) losses {
	deadline := time.Now().Add(pingTimeout + 2*p.every)
	for {
		var l losses
		waiting := false
		for _, c := range p.list {
			switch {
			case c.isLost() && errors.Is(c.err, os.ErrDeadlineExceeded):
				l.silent++
			case c.isLost():
				l.reset++
			case c.answered.Load() < since.UnixNano():
				waiting = true
			}
		}
		if !waiting || ctx.Err() != nil || time.Now().After(deadline) {
			return l
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *pings) close() {
	for _, c := range p.list {
		_ = c.conn.Close() // it ends its goroutine, which says so to nobody
	}
	for _, c := range p.list {
		<-c.done
	}
	p.list = nil
}
