package native

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// introduced is a connection of a load balancer that says first whose it is.
type introduced struct{ *proxyproto.Conn }

// CloseWrite says that nothing more comes.
func (i introduced) CloseWrite() error { return closeWrite(i.Raw()) }

// introduce has a connection begin with a header of the PROXY protocol if it
// comes from one of Options.ProxyFrom. The header is read with the connection's
// first use; without one, reading fails.
func (e *Engine) introduce(c net.Conn) net.Conn {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil || !policy.Contains(e.options.ProxyFrom, peer.Addr().Unmap()) {
		return c
	}
	return introduced{proxyproto.NewConn(c, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(headerTimeout))}
}

// ends are those of a client's connection.
type ends struct{ client, gateway netip.AddrPort }

type endsKey struct{}

// endsOf are those of a connection.
func endsOf(remote, local net.Addr) ends {
	var e ends
	for _, one := range []struct {
		from net.Addr
		to   *netip.AddrPort
	}{{remote, &e.client}, {local, &e.gateway}} {
		if one.from == nil {
			continue
		}
		if a, err := netip.ParseAddrPort(one.from.String()); err == nil {
			*one.to = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		}
	}
	return e
}

// withEnds has connections to endpoints say whose they are.
func withEnds(ctx context.Context, e ends) context.Context {
	return context.WithValue(ctx, endsKey{}, e)
}

// sayWhose begins a connection to an endpoint with a header of the PROXY
// protocol, if its pool asks for one. It says that the connection is the
// gateway's own if the client isn't known.
func sayWhose(ctx context.Context, c net.Conn, version model.ProxyVersion) error {
	if version == model.ProxyNone {
		return nil
	}
	h := &proxyproto.Header{Version: byte(version), Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	if e, known := ctx.Value(endsKey{}).(ends); known && e.client.IsValid() && e.client.Addr().Is4() == e.gateway.Addr().Is4() {
		h = proxyproto.HeaderProxyFromAddrs(byte(version), net.TCPAddrFromAddrPort(e.client), net.TCPAddrFromAddrPort(e.gateway))
	}
	if _, err := h.WriteTo(c); err != nil {
		return fmt.Errorf("say whose connection it is: %w", err)
	}
	return nil
}
