package gateway

import (
	"cmp"
	"context"
	"net"
	"net/netip"

	"github.com/fairway-net/fairway/ingress/engine/haproxy"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/model"
)

// engine is what serves a table. All engines are one.
type engine interface {
	// Inherit has the next table served by listeners of another process.
	Inherit(map[netip.AddrPort]*net.TCPListener)
	Apply(*model.Table) error
	// Listeners are those that are served, for another process.
	Listeners() map[netip.AddrPort]*net.TCPListener
	Close(context.Context)
}

// kind is which engine it is.
func (p *process) kind() string { return cmp.Or(p.config.Kind, engines.Native) }

// makeEngine makes the engine that is asked for.
func (g *gateway) makeEngine() error {
	options := g.config.Engine
	options.Logger = g.log
	if g.kind() == engines.HAProxy {
		e, err := haproxy.New(haproxy.Options{
			Drain: options.Drain, ProxyFrom: options.ProxyFrom, Trusted: options.Trusted, PerClient: options.PerClient, Access: options.Access, Logger: g.log,
		})
		if err != nil {
			return err
		}
		g.metrics.countBy(e.Requests, g.log)
		g.engine = e
		return nil
	}
	options.Access = g.metrics.count(options.Access)
	e, err := native.New(options)
	if err != nil {
		return err
	}
	g.engine = e
	return nil
}
