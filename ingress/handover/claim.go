package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// again is when a successor asks again that wasn't heard.
const again = 100 * time.Millisecond

// Claim is how a process takes the place of another one.
type Claim struct {
	conn *net.UnixConn
	// Own is the predecessor's offer, for Listen; nil if it wasn't handed over.
	Own *net.UnixListener
}

// Connect announces a successor to the process that offers its listeners at
// address. There is no claim if nobody does.
func Connect(ctx context.Context, address string) (*Claim, error) {
	for {
		c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: address, Net: network})
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for a process to take over from: %w", err)
		}
		if err = checkPeer(c); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("take over from the process at %s: %w", address, err)
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		if err = send(c, message{Step: stepHello}, nil); err == nil {
			err = expect(c, stepWelcome, 0) // another one may be at it
		}
		if stop() && err == nil {
			return &Claim{conn: c}, nil
		}
		_ = c.Close()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(again):
		}
	}
}

// Take gets the listeners, which are the caller's then, by name. An error means
// that the process before is gone with them.
func (c *Claim) Take() (map[string]*net.TCPListener, error) {
	if err := send(c.conn, message{Step: stepTake}, nil); err != nil {
		return nil, err
	}
	out := map[string]*net.TCPListener{}
	for more := true; more; {
		if err := c.conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return out, fmt.Errorf("wait for listeners: %w", err)
		}
		m, files, err := receive(c.conn)
		if err != nil {
			return out, fmt.Errorf("wait for listeners: %w", err)
		}
		if m.Step != stepListeners || len(m.Names) != len(files) {
			closeAll(files)
			return out, fmt.Errorf("wait for listeners: got %q with %d names and %d files", m.Step, len(m.Names), len(files))
		}
		for i, f := range files {
			if err := c.add(out, m.Names[i], f); err != nil {
				closeAll(files[i:])
				return out, err
			}
		}
		more = m.More
	}
	return out, nil
}

// add makes a listener of a file, which is closed.
func (c *Claim) add(out map[string]*net.TCPListener, name string, f *os.File) error {
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("take over %s: %w", name, err)
	}
	switch l := l.(type) {
	case *net.TCPListener:
		out[name] = l
	case *net.UnixListener:
		c.Own = l
	default:
		_ = l.Close()
	}
	return f.Close()
}

// Serving says that this process serves, and ends the claim. An error means that
// the process before is gone already.
func (c *Claim) Serving() error {
	defer c.Close()
	return send(c.conn, message{Step: stepServing}, nil)
}

// Close gives the claim up.
func (c *Claim) Close() {
	_ = c.conn.Close() // nothing is lost by an error
}
