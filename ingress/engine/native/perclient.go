package native

import (
	"net"
	"net/netip"
	"sync"

	"github.com/fairway-net/fairway/ingress/policy"
)

// connections counts those of each client.
type connections struct {
	mu      sync.Mutex
	clients map[netip.Prefix]int
}

// clientRange is what counts as one client: an address, or the range of IPv6 that
// one line has.
func clientRange(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // either length is a family's
	return p
}

// admit counts a connection until it is closed; nil, and the connection is closed,
// if its client has as many as it may. Load balancers' are those of many.
func (e *Engine) admit(c *net.TCPConn) net.Conn {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	client := peer.Addr().Unmap()
	if most := e.options.PerClient; err == nil && most > 0 && !policy.Contains(e.options.ProxyFrom, client) && !policy.Contains(e.options.Trusted, client) {
		of := clientRange(client)
		if !e.connections.enter(of, most) {
			_ = c.SetLinger(0) // nothing of it stays, not even in the kernel
			_ = c.Close()
			return nil
		}
		return &counted{TCPConn: c, leave: func() { e.connections.leave(of) }}
	}
	return c
}

func (n *connections) enter(client netip.Prefix, most int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.clients[client] >= most {
		return false
	}
	if n.clients == nil {
		n.clients = map[netip.Prefix]int{}
	}
	n.clients[client]++
	return true
}

func (n *connections) leave(client netip.Prefix) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.clients[client]--; n.clients[client] == 0 {
		delete(n.clients, client)
	}
}

// counted is a connection that is one of its client's.
type counted struct {
	*net.TCPConn
	once  sync.Once
	leave func()
}

func (c *counted) Close() error {
	c.once.Do(c.leave)
	return c.TCPConn.Close()
}
