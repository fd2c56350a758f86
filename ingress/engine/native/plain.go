package native

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// plainConn is a client's connection without TLS, as net/http gets it. It saves two
// things that net/http does with each request and that cost a tenth of the request:
// setting deadlines again and again, and a goroutine that reads to learn that the
// client has gone.
type plainConn struct {
	lingering
	raw syscall.RawConn // nil if the connection has none
	// handled is set while a handler runs for a request without a body. Only net/http's
	// background goroutine reads then: Read gives it no bytes, so it ends. cutGone checks in
	// its place whether the client has gone.
	handled atomic.Bool
	// replay is what serveSimple read and leaves net/http to answer; Read returns it first.
	replay  []byte
	counted bool                  // in socket.open
	begun   atomic.Pointer[begun] // the answer that serveSimple has to the first request; nil if none

	mu sync.Mutex
	// wanted is the deadline for reading that net/http set last. armed is the one that Conn
	// has, which may be earlier: Read moves it when it expires.
	wanted, armed time.Time
}

// newPlainConn wraps an accepted connection, before anything is read from it.
func newPlainConn(c net.Conn) *plainConn {
	p := &plainConn{lingering: lingering{Conn: c}}
	if sc, ok := c.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn() // without it, net/http's goroutine reads
	}
	return p
}

type connectionKey struct{}

// withConnection has the contexts of a connection's requests lead to it.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// connectionOf is the client's connection of a request; nil in HTTP/3.
func connectionOf(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connectionKey{}).(net.Conn)
	return c
}

// plainOf is the connection of a request of HTTP/1.1 that can be looked at; nil if
// it isn't such a one.
func plainOf(ctx context.Context) *plainConn {
	if p, ok := connectionOf(ctx).(*plainConn); ok && p.raw != nil {
		return p
	}
	return nil
}

// Read is the connection's. A deadline that has been put off since Conn had it
// doesn't count.
func (p *plainConn) Read(b []byte) (int, error) {
	for {
		if p.handled.Load() {
			return 0, nil
		}
		if len(p.replay) > 0 {
			n := copy(b, p.replay)
			p.replay = p.replay[n:]
			return n, nil
		}
		n, err := p.Conn.Read(b)
		if n > 0 || err == nil || !isTimeout(err) || !p.putOff() {
			return n, err
		}
	}
}

// Close closes the connection, and an answer that was not handed to the client.
func (p *plainConn) Close() error {
	if b := p.begun.Swap(nil); b != nil {
		b.drop()
	}
	return p.lingering.Close()
}

func isTimeout(err error) bool {
	var of net.Error
	return errors.As(err, &of) && of.Timeout()
}

// putOff gives Conn the deadline that is wanted, and reports whether it is still to
// come.
func (p *plainConn) putOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted.IsZero() && !p.wanted.After(time.Now()) {
		return false
	}
	p.armed = p.wanted
	return p.Conn.SetReadDeadline(p.armed) == nil
}

// SetReadDeadline leaves Conn an earlier deadline, but for one that has reading end
// now.
func (p *plainConn) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = t
	if t.IsZero() || !p.armed.IsZero() && !t.Before(p.armed) {
		return nil
	}
	p.armed = t
	return p.Conn.SetReadDeadline(t)
}

// SetDeadline is both.
func (p *plainConn) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// hasGone reports whether the client has closed the connection.
func (p *plainConn) hasGone() bool {
	gone := false
	err := p.raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = err == nil && n == 0 || err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	return gone || err != nil
}
