package userspace

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// exitTimeout is how long a relay may take to end when it is told to.
const exitTimeout = 10 * time.Second

// Remove implements dataplane.Plane. It ends the relay and those before it that
// still have connections.
func (p *Plane) Remove(context.Context) error {
	p.forget()
	var failed []error
	l, _, err := connect(p.socket)
	switch {
	case err == nil:
		failed = append(failed, end(l))
	case !notRunning(err):
		failed = append(failed, err)
	}
	earlier, err := predecessors(p.socket)
	failed = append(failed, err)
	for _, l := range earlier {
		failed = append(failed, end(l))
	}
	return errors.Join(append(failed, removeFile(p.socket), clearUp(p.socket))...)
}

// clearUp takes away what leads packets to relays, unless there are any, and
// their log last of all.
func clearUp(socket string) error {
	if l, _, err := connect(socket); !notRunning(err) {
		if err == nil {
			err = l.conn.Close()
		}
		return err
	}
	others, err := predecessors(socket)
	for _, l := range others {
		discard(l.conn.Close())
	}
	if err != nil || len(others) > 0 {
		return err
	}
	failed := []error{removeLeadBack()}
	routes, err := readRoutes()
	failed = append(failed, err)
	for prefix := range routes {
		failed = append(failed, deleteRoute(prefix))
	}
	return errors.Join(append(failed, removeFile(socket), removeFile(logFile(socket)))...)
}

// forget ends watching, and all that was known.
func (p *Plane) forget() {
	if p.done != nil {
		close(p.done)
		p.done = nil
	}
	if p.relay != nil {
		discard(p.relay.conn.Close())
		p.relay = nil
	}
	p.last, p.swept = nil, nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routes = routeSet{}
}

// end ends a relay and waits until it has ended.
func end(l *link) error {
	defer func() { discard(l.conn.Close()) }()
	if err := l.conn.SetDeadline(time.Now().Add(exitTimeout)); err != nil {
		return fmt.Errorf("end relay: %w", err)
	}
	if _, err := l.ask(request{Op: opExit}); err != nil && !errors.Is(err, errBroken) {
		return fmt.Errorf("end relay: %w", err)
	}
	// It closes the connection by ending.
	if err := l.decoder.Decode(&reply{}); isTimeout(err) {
		return fmt.Errorf("end relay: %w", err)
	}
	return nil
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
