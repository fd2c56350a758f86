// Package probe sends the packets that fairway doctor asks for, from the machine
// it runs on and as the user who runs it.
package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/internal/netns"
)

// Timeout bounds each probe.
const Timeout = time.Second

// Prober is doctor.Prober with real packets.
type Prober struct {
	NS *netns.NS // where packets begin; nil for the namespace of this process
}

// in runs fn where packets begin. What fn dials must be one address, which the
// calling goroutine dials by itself.
func (p Prober) in(fn func() error) error {
	if p.NS == nil {
		return fn()
	}
	return p.NS.Do(fn)
}

// Connect tries to open a TCP connection and closes it at once.
func (p Prober) Connect(ctx context.Context, to netip.AddrPort) string {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var d net.Dialer
	var conn net.Conn
	err := p.in(func() (err error) {
		conn, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	switch {
	case err == nil:
		if err := conn.Close(); err != nil {
			return err.Error()
		}
		return "ok"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in " + Timeout.String()
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	return err.Error()
}

// Lookup asks one DNS server for the addresses of a name, as an absolute name.
func (p Prober) Lookup(ctx context.Context, server netip.AddrPort, network, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		var d net.Dialer
		err = p.in(func() (err error) {
			conn, err = d.DialContext(ctx, network, server.String())
			return err
		})
		return conn, err
	}}
	list, err := r.LookupNetIP(ctx, "ip", name+".")
	var dns *net.DNSError
	if errors.As(err, &dns) {
		err = errors.New(dns.Err)
	}
	for i := range list {
		list[i] = list[i].Unmap()
	}
	return list, err
}
