package userspace

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lateComers is how long a relay that retires still takes in what was on its way
// when the other plane took over: connections that are being opened, and
// datagrams that wait for their answer.
const lateComers = 5 * time.Second

// retire gives up to another plane (kernel.HandOver). Established
// connections stay in the relay, and the routes that lead to it stay with them;
// the last relay to end takes those away. The other plane leaves the
// connections alone because conntrack knows them.
func (p *Plane) retire(ctx context.Context) error {
	l, _, err := connect(ctx, p.socket)
	if err == nil {
		_, err = l.ask(ctx, request{Op: opRetire})
		if err := errors.Join(err, l.conn.Close()); err != nil {
			return fmt.Errorf("retire relay: %w", err)
		}
		return nil
	}
	if !notRunning(err) {
		return fmt.Errorf("retire relay: %w", err)
	}
	// Relays of a relay that was killed may be there.
	earlier, err := predecessors(ctx, p.socket)
	failed := []error{err}
	for _, l := range earlier {
		_, err := l.ask(ctx, request{Op: opRetire})
		failed = append(failed, err, l.conn.Close())
	}
	return errors.Join(append(failed, clearUp(ctx, p.socket, &p.steps))...)
}

// retire lets the relay take in only what is on its way, and end with its last
// connection.
func (s *server) retire() error {
	if s.clearUp.Swap(true) {
		return nil // it is retiring already
	}
	if s.path != s.config.Socket {
		return nil // it has handed all but its connections over
	}
	s.relay.setRetired(true)
	main := s.listener
	err := s.open(asideName(s.config.Socket))
	discard(main.Close())
	go func() {
		time.Sleep(lateComers)
		s.asking.Lock() // a successor may be taking over just now
		for _, x := range s.relay.setRetired(true) {
			x.freeze()
		}
		s.relay.closeListeners()
		s.asking.Unlock()
		s.relay.flows.wait()
		s.stop()
	}()
	return errors.Join(err, removeFile(s.config.Socket))
}
