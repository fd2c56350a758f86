package native

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// relay connects a client with an endpoint of the route for its server name.
func (s *socket) relay(c net.Conn, l *model.Listener, name string) {
	defer func() { _ = c.Close() }()
	d := (&model.Socket{Listeners: []*model.Listener{l}}).Decide(&model.Request{Host: name, Path: "/"})
	if d.Status != 0 {
		return
	}
	b := d.Rule.Action.Choose(rand.Uint64())
	pool := s.engine.table.Load().Pools[b.Pool]
	if b.Invalid != "" || pool == nil {
		return
	}
	secured := l.Mode == model.Terminate // passed through, TLS is the client's own
	if secured && pool.Invalid != "" {
		return
	}
	client, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	backend := s.dial(withEnds(s.streamCtx, endsOf(c.RemoteAddr(), c.LocalAddr())), pool, client.Addr().Unmap(), secured)
	if backend == nil {
		return
	}
	end := func() { _, _ = c.Close(), backend.Close() } // nothing more is to come
	defer end()
	defer context.AfterFunc(s.streamCtx, end)()
	var both sync.WaitGroup
	both.Go(func() { pour(backend, c, end) })
	pour(c, backend, end)
	both.Wait()
}

// dial connects to an endpoint, to others if one doesn't answer: with TLS if
// the pool's endpoints have it and the connection is to be secured by us.
func (s *socket) dial(ctx context.Context, pool *model.Pool, client netip.Addr, secured bool) net.Conn {
	var failed []netip.AddrPort
	for range maxTries {
		ep, ok := s.engine.pickers.pick(pool, client, "", failed)
		if !ok {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		d := dialer{proxy: pool.Proxy}
		c, err := d.plain(ctx, "tcp", ep.String())
		if config := clientTLS(pool.TLS); err == nil && secured && config != nil {
			t := tls.Client(c, config)
			if err = t.HandshakeContext(ctx); err != nil {
				_ = c.Close()
			}
			c = t
		}
		cancel()
		if out := s.engine.pickers.of(pool.Name).judge(pool, ep, err != nil, time.Now()); out > 0 {
			s.engine.log.Warn("endpoint fails, and gets no connections for a while", "pool", pool.Name, "endpoint", ep, "duration", out)
		}
		if err == nil {
			return c
		}
		failed = append(failed, ep)
	}
	return nil
}
