package handover

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Offer is how a process that serves waits for its successor.
type Offer struct {
	listener  *net.UnixListener
	listeners func() map[string]*net.TCPListener
	log       *slog.Logger
	taken     chan struct{}

	mu   sync.Mutex
	left chan struct{} // closed with the claim that there is; nil if there is none
}

// Listen offers, at address, the listeners that the function names when a
// successor asks. They stay the caller's. An address that begins with "@" has no
// file (unix(7), abstract). The inherited one, if not nil, is that of the
// predecessor ([Claim.Take]).
func Listen(address string, inherited *net.UnixListener, listeners func() map[string]*net.TCPListener, log *slog.Logger) (*Offer, error) {
	l := inherited
	if l == nil {
		if address != "" && address[0] != '@' {
			if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("offer listeners: %w", err)
			}
		}
		var err error
		if l, err = net.ListenUnix(network, &net.UnixAddr{Name: address, Net: network}); err != nil {
			return nil, fmt.Errorf("offer listeners: %w", err)
		}
	}
	l.SetUnlinkOnClose(false) // it may be the successor's by then
	o := &Offer{listener: l, listeners: listeners, log: log, taken: make(chan struct{})}
	go o.accept()
	return o, nil
}

// Taken is closed once a successor serves.
func (o *Offer) Taken() <-chan struct{} { return o.taken }

// Left returns a channel that is closed when the successor that is on its way
// ends or serves; nil if there is none.
func (o *Offer) Left() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.left
}

// Close ends the offer.
func (o *Offer) Close() {
	_ = o.listener.Close() // nothing is lost by an error
}

func (o *Offer) accept() {
	for {
		c, err := o.listener.AcceptUnix()
		if err != nil {
			return // closed
		}
		switch err := checkPeer(c); {
		case err != nil:
			o.log.Warn("a process that asked for the listeners was refused", "error", err)
		case o.serve(c):
			_ = c.Close()
			o.Close()
			return
		}
		_ = c.Close() // all has been said
	}
}

// serve goes through the steps with a successor, and reports whether it serves.
// Others wait meanwhile.
func (o *Offer) serve(c *net.UnixConn) bool {
	left := make(chan struct{})
	o.set(left)
	err := o.steps(c)
	if err == nil {
		close(o.taken)
	} else {
		o.log.Warn("the new process didn't take over; this one continues", "error", err)
	}
	o.set(nil)
	close(left)
	return err == nil
}

func (o *Offer) set(left chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left = left
}

func (o *Offer) steps(c *net.UnixConn) error {
	if err := expect(c, stepHello, answerTimeout); err != nil {
		return err
	}
	if err := send(c, message{Step: stepWelcome}, nil); err != nil {
		return err
	}
	// As long as it takes: the API may be away.
	if err := expect(c, stepTake, 0); err != nil {
		return err
	}
	if err := o.pass(c); err != nil {
		return err
	}
	return expect(c, stepServing, answerTimeout)
}

// pass sends the listeners, some at a time.
func (o *Offer) pass(c *net.UnixConn) error {
	files := map[string]*os.File{}
	defer func() { closeAll(slices.Collect(maps.Values(files))) }()
	var err error
	if files[own], err = o.listener.File(); err != nil {
		return fmt.Errorf("hand over %s: %w", own, err)
	}
	for name, l := range o.listeners() {
		f, err := l.File()
		if err != nil {
			return fmt.Errorf("hand over %s: %w", name, err)
		}
		files[name] = f
	}
	chunks := slices.Collect(slices.Chunk(slices.Sorted(maps.Keys(files)), maxFiles))
	for i, names := range chunks {
		list := make([]*os.File, len(names))
		for j, name := range names {
			list[j] = files[name]
		}
		if err := send(c, message{Step: stepListeners, Names: names, More: i < len(chunks)-1}, list); err != nil {
			return err
		}
	}
	return nil
}

// expect reads a message of a step; a limit of 0 is none.
func expect(c *net.UnixConn, step string, limit time.Duration) error {
	deadline := time.Time{}
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	if err := c.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("wait for %q: %w", step, err)
	}
	m, files, err := receive(c)
	closeAll(files)
	if err != nil {
		return fmt.Errorf("wait for %q: %w", step, err)
	}
	if m.Step != step {
		return fmt.Errorf("wait for %q: got %q", step, m.Step)
	}
	return nil
}
