package bench

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/internal/netns"
)

const (
	newEvery   = 10 * time.Millisecond
	newTimeout = 5 * time.Second
)

// newcomers are connections that are made one after the other, each of which asks
// once. They say whether an event had new ones refused.
type newcomers struct {
	stop chan struct{}
	work sync.WaitGroup

	mu                     sync.Mutex
	made, refused, unheard int
}

func startNewcomers(ns *netns.NS, to netip.AddrPort) *newcomers {
	c := &newcomers{stop: make(chan struct{})}
	c.work.Go(func() {
		for {
			select {
			case <-c.stop:
				return
			case <-time.After(newEvery):
			}
			c.work.Go(func() { c.note(askOnce(ns, to)) })
		}
	})
	return c
}

// askOnce makes a connection that is answered once.
func askOnce(ns *netns.NS, to netip.AddrPort) error {
	conn, err := dialIn(ns, newTimeout, "tcp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // what counts was answered
	if err := conn.SetDeadline(time.Now().Add(newTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "x\n"); err != nil {
		return err
	}
	_, err = bufio.NewReaderSize(conn, 128).ReadSlice('\n')
	return err
}

func (c *newcomers) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var timeout net.Error
	switch {
	case err == nil:
		c.made++
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.EHOSTUNREACH):
		c.unheard++
	default:
		c.refused++
	}
}

// close waits until all have been answered, or have failed.
func (c *newcomers) close() {
	close(c.stop)
	c.work.Wait()
}
