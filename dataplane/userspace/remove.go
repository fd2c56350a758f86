package userspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
)

// exitTimeout is how long a relay may take to end when it is told to.
const exitTimeout = 10 * time.Second

// Remove implements dataplane.Plane. Unless it hands over, it ends the relay and
// those before it that still have connections.
func (p *Plane) Remove(ctx context.Context, how kernel.Removal) error {
	p.forget()
	if how == kernel.HandOver {
		return p.retire(ctx)
	}
	var failed []error
	l, _, err := connect(ctx, p.socket)
	switch {
	case err == nil:
		failed = append(failed, end(ctx, l))
	case !notRunning(err):
		failed = append(failed, err)
	}
	if err := p.steps.At("relay ended"); err != nil {
		return errors.Join(append(failed, err)...)
	}
	earlier, err := predecessors(ctx, p.socket)
	failed = append(failed, err)
	for _, l := range earlier {
		failed = append(failed, end(ctx, l))
	}
	failed = append(failed, removeFile(p.socket))
	if err := p.steps.At("socket removed"); err != nil {
		return errors.Join(append(failed, err)...)
	}
	return errors.Join(append(failed, clearUp(ctx, p.socket, &p.steps))...)
}

// clearUp takes away what leads packets to relays, unless there are any, and
// their log last of all.
func clearUp(ctx context.Context, socket string, steps *kernel.Steps) error {
	if l, _, err := connect(ctx, socket); !notRunning(err) {
		if err == nil {
			err = l.conn.Close()
		}
		return err
	}
	others, err := predecessors(ctx, socket)
	for _, l := range others {
		discard(l.conn.Close())
	}
	if err != nil || len(others) > 0 {
		return err
	}
	failed := []error{removeReturnPath()}
	if err := steps.At("return path removed"); err != nil {
		return errors.Join(append(failed, err)...)
	}
	routes, err := readRoutes()
	failed = append(failed, err)
	for prefix := range routes {
		failed = append(failed, deleteRoute(prefix))
		if err := steps.At("route deleted"); err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	return errors.Join(append(failed, removeFile(socket), removeFile(logFile(socket)))...)
}

// end ends a relay and waits until it has ended.
func end(ctx context.Context, l *link) error {
	defer func() { discard(l.conn.Close()) }()
	if err := l.conn.SetDeadline(time.Now().Add(exitTimeout)); err != nil {
		return fmt.Errorf("end relay: %w", err)
	}
	if _, err := l.ask(ctx, request{Op: opExit}); err != nil && !errors.Is(err, errBroken) {
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
