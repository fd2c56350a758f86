// Package probe sends the packets that fairway doctor asks for, from the machine
// it runs on and as the user who runs it.
package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
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
	from := p.NS
	if from == nil {
		here, err := netns.Current()
		if err != nil {
			return err.Error()
		}
		defer here.Close() //nolint:errcheck // nothing was done in it
		from = here
	}
	attempt, err := NewAttempt(from, model.TCP, to)
	if err != nil {
		return err.Error()
	}
	err = attempt.Make(ctx, Timeout)
	if err == nil {
		err = attempt.Close()
	} else {
		_ = attempt.Close() // it has failed already
	}
	return connectResult(err)
}

// connectResult is doctor.Prober's word for how an attempt ended.
func connectResult(err error) string {
	var prohibited *ProhibitedError
	var number syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &prohibited):
		return doctor.Prohibited + prohibited.By.String()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, ErrNoAnswer), errors.Is(err, context.DeadlineExceeded):
		return "no answer in " + Timeout.String()
	case errors.As(err, &number):
		return number.Error()
	}
	return err.Error()
}

// Lookup asks one DNS server for the addresses of a name, as an absolute name.
func (p Prober) Lookup(ctx context.Context, from netip.Addr, server netip.AddrPort, network, name string) ([]netip.Addr, error) {
	if from.IsValid() {
		at, err := p.at(from)
		if err != nil {
			return nil, err
		}
		defer at.NS.Close() //nolint:errcheck // sockets in it outlive it
		p = at
	}
	return p.lookup(ctx, server, network, name)
}

func (p Prober) lookup(ctx context.Context, server netip.AddrPort, network, name string) ([]netip.Addr, error) {
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
