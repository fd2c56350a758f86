package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/lab/topology"
)

// relay passes on TCP connections to some addresses in one network namespace to
// an address in another.
type relay struct {
	listeners []net.Listener
	dial      func(context.Context) (net.Conn, error)
}

// newRelay listens on a port of all addresses of a host, for an address in the
// caller's namespace.
func newRelay(h *topology.Host, port uint16, to string) (*relay, error) {
	r := &relay{dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", to)
	}}
	for _, a := range h.Addresses {
		err := h.Do(func() error {
			l, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
			if err == nil {
				r.listeners = append(r.listeners, l)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("relay to the API server: %w", err), r.close())
		}
	}
	return r, nil
}

func (r *relay) close() error {
	var errs []error
	for _, l := range r.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// run relays until the context ends.
func (r *relay) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		if err := r.close(); err != nil {
			slog.Error("a relay could not be closed", "error", err)
		}
	})()
	var group errgroup.Group
	for _, l := range r.listeners {
		group.Go(func() error {
			for {
				c, err := l.Accept()
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					slog.Warn("a relay could not accept a connection", "error", err)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				go r.serve(ctx, c)
			}
		})
	}
	return group.Wait()
}

// serve relays one connection until both sides have finished.
func (r *relay) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := r.dial(ctx)
	if err != nil {
		return // the client sees its connection closed, as it would without us
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		// An error ends the connection for the other side too; that is all
		// that can be said to it.
		_, _ = io.Copy(to, from)
		_ = to.(*net.TCPConn).CloseWrite()
	}
	both.Go(func() { copyTo(server, client) })
	both.Go(func() { copyTo(client, server) })
	both.Wait()
}
