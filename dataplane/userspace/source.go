package userspace

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// dialer reaches a backend: from the client's address where the table wants the
// backend to see it and answers to it come by here, else from the node's own.
func (r *relay) dialer(v model.Verdict, backend netip.AddrPort) *net.Dialer {
	d := &net.Dialer{Timeout: r.dialTimeout}
	if !r.transparent.Load() || !keepsSource(r.current().Settings, v, backend) {
		return d
	}
	// Any port: the client may use its own for this backend without us.
	d.Control, d.LocalAddr = makeTransparent, &net.TCPAddr{IP: v.Src.AsSlice()}
	if v.Pool.ID.Proto == model.UDP {
		d.LocalAddr = &net.UDPAddr{IP: v.Src.AsSlice()}
	}
	return d
}

// keepsSource reports whether a backend shall and can see the client's address.
// It can if it is on this node, but not the node itself, whose answers to
// others leave without passing prerouting. Direct server return, which this plane
// hasn't, is masqueraded whichever backend is chosen.
func keepsSource(s *model.Settings, v model.Verdict, backend netip.AddrPort) bool {
	if v.Origin == model.FromNode || v.Src.IsLinkLocalUnicast() {
		return false
	}
	i := slices.IndexFunc(v.Pool.Backends, func(b model.Backend) bool { return b.AddrPort() == backend })
	if i < 0 {
		return false
	}
	b := v.Pool.Backends[i]
	return b.Local && !isNode(s, b.Addr) && !b.Addr.IsLoopback() && !v.Masquerades(b) && !v.Direct && answersPass(v.Src, b.Addr)
}

// answersPass reports whether a backend's packets to a client pass this node.
// Those behind one interface, a bridge say, may reach each other without it.
func answersPass(client, backend netip.Addr) bool {
	towardsClient, err := netlink.RouteGet(client.AsSlice())
	if err != nil || len(towardsClient) == 0 {
		return false
	}
	towardsBackend, err := netlink.RouteGet(backend.AsSlice())
	return err == nil && len(towardsBackend) > 0 && towardsClient[0].LinkIndex != towardsBackend[0].LinkIndex
}

// makeTransparent lets a socket have an address that isn't this node's
// (IP_TRANSPARENT, linux/in.h).
func makeTransparent(network, _ string, c syscall.RawConn) error {
	var err error
	controlErr := c.Control(func(fd uintptr) {
		if strings.HasSuffix(network, "6") {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
		}
		if strings.HasPrefix(network, "tcp") { // so that connect chooses the port, among those free for this backend
			err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
		}
	})
	return errors.Join(controlErr, err)
}
