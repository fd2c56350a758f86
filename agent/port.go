package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/diagnose/agentlink"
)

// servePort answers API servers at the agent's port until ctx is done: where this
// machine has a Node of its own making, and a certificate by which API servers know it.
// The Node says at which port.
func (a *Agent) servePort(ctx context.Context) {
	identity := a.config.Identity
	if identity == nil {
		api := rest.CopyConfig(a.config.API)
		identity = func() (*tls.Config, error) { return rest.TLSConfigFor(api) }
	}
	if own, err := identity(); err != nil || own == nil || own.RootCAs == nil || len(own.Certificates) == 0 && own.GetClientCertificate == nil {
		a.config.Log.Debug("API servers can't ask this agent: it has no certificate by which they know it", "error", err)
		return
	}
	said := false
	for ctx.Err() == nil {
		err := a.servePortOnce(ctx, identity)
		if err != nil && !said && ctx.Err() == nil {
			a.config.Log.Warn("users elsewhere can't ask this agent; trying again", "address", a.config.AgentAddress, "error", err)
			said = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(bindAgain):
		}
	}
}

func (a *Agent) servePortOnce(ctx context.Context, identity agentlink.Identity) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", a.config.AgentAddress)
	if err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	a.port.Store(uint32(at.Port()))
	signal(a.unregistered) // the Node shall say so
	defer a.port.Store(0)
	return agentlink.ServePort(ctx, listener, identity, link{a})
}
