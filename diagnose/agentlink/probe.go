package agentlink

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/fairway-net/fairway/diagnose/doctor"
)

// The probes that an agent makes for doctor; see doctor.Prober.
const (
	probeConnect   = "connect"
	probeEcho      = "echo"
	probeLoopback  = "loopback"
	probeLookup    = "lookup"
	probeResolvers = "resolvers"
)

// ProbeRequest asks for packets from the agent's machine.
type ProbeRequest struct {
	What    string         `json:"what"`
	From    netip.Addr     `json:"from,omitzero"` // of a pod; none is the machine itself
	To      netip.AddrPort `json:"to,omitzero"`   // without a port for echo and resolvers
	Full    bool           `json:"full,omitempty"`
	Network string         `json:"network,omitempty"` // "udp" or "tcp", of a lookup
	Name    string         `json:"name,omitempty"`
}

// ProbeAnswer is what came of it.
type ProbeAnswer struct {
	Result    string            `json:"result,omitempty"`
	At        netip.AddrPort    `json:"at,omitzero"`
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Resolvers []doctor.Resolver `json:"resolvers,omitempty"`
	Error     string            `json:"error,omitempty"`
	NotThere  bool              `json:"notThere,omitempty"` // as doctor.ErrNotThere
}

// Probed makes the probe that a request asks for.
func Probed(ctx context.Context, p doctor.Prober, r ProbeRequest) (ProbeAnswer, error) {
	if !r.To.Addr().IsValid() {
		return ProbeAnswer{}, errors.New("to: not given")
	}
	switch {
	case r.What == probeConnect && r.From.IsValid():
		return ProbeAnswer{Result: p.ConnectFrom(ctx, r.From, r.To)}, nil
	case r.What == probeConnect:
		return ProbeAnswer{Result: p.Connect(ctx, r.To)}, nil
	case r.What == probeEcho:
		return ProbeAnswer{Result: p.Echo(ctx, r.From, r.To.Addr(), r.Full)}, nil
	case r.What == probeLoopback:
		return ProbeAnswer{At: p.AtLoopback(r.To)}, nil
	case r.What == probeResolvers:
		return ProbeAnswer{Resolvers: p.Resolvers(r.To.Addr())}, nil
	case r.What == probeLookup && (r.Network == "udp" || r.Network == "tcp"):
		list, err := p.Lookup(ctx, r.From, r.To, r.Network, r.Name)
		a := ProbeAnswer{Addresses: list, NotThere: errors.Is(err, doctor.ErrNotThere)}
		if err != nil {
			a.Error = err.Error()
		}
		return a, nil
	}
	return ProbeAnswer{}, fmt.Errorf("what: %q is no probe", r.What)
}

// Prober is a doctor.Prober whose packets begin at the agent's machine.
type Prober struct{ *Client }

func (p Prober) probe(ctx context.Context, r ProbeRequest) (ProbeAnswer, error) {
	var a ProbeAnswer
	err := p.askSlowly(ctx, http.MethodPost, probePath, r, &a)
	return a, err
}

// Connect implements doctor.Prober.
func (p Prober) Connect(ctx context.Context, to netip.AddrPort) string {
	return p.result(ctx, ProbeRequest{What: probeConnect, To: to})
}

// ConnectFrom implements doctor.Prober.
func (p Prober) ConnectFrom(ctx context.Context, from netip.Addr, to netip.AddrPort) string {
	a, err := p.probe(ctx, ProbeRequest{What: probeConnect, From: from, To: to})
	if err != nil {
		return "" // it can't be tried, as where there is no such pod
	}
	return a.Result
}

// Echo implements doctor.Prober.
func (p Prober) Echo(ctx context.Context, from, to netip.Addr, full bool) string {
	return p.result(ctx, ProbeRequest{What: probeEcho, From: from, To: netip.AddrPortFrom(to, 0), Full: full})
}

// AtLoopback implements doctor.Prober.
func (p Prober) AtLoopback(to netip.AddrPort) netip.AddrPort {
	a, err := p.probe(context.Background(), ProbeRequest{What: probeLoopback, To: to})
	if err != nil {
		return netip.AddrPort{} // nothing was found
	}
	return a.At
}

// Lookup implements doctor.Prober.
func (p Prober) Lookup(ctx context.Context, from netip.Addr, server netip.AddrPort, network, name string) ([]netip.Addr, error) {
	a, err := p.probe(ctx, ProbeRequest{What: probeLookup, From: from, To: server, Network: network, Name: name})
	switch {
	case err == nil && a.NotThere:
		err = doctor.ErrNotThere
	case err == nil && a.Error != "":
		err = errors.New(a.Error)
	}
	return a.Addresses, err
}

// Resolvers implements doctor.Prober.
func (p Prober) Resolvers(of netip.Addr) []doctor.Resolver {
	a, err := p.probe(context.Background(), ProbeRequest{What: probeResolvers, To: netip.AddrPortFrom(of, 0)})
	if err != nil {
		return nil // none was found
	}
	return a.Resolvers
}

func (p Prober) result(ctx context.Context, r ProbeRequest) string {
	a, err := p.probe(ctx, r)
	if err != nil {
		return err.Error()
	}
	return a.Result
}
