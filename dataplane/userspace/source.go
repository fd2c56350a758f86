package userspace

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// The ports of connections that have their client's address. Clients don't take any
// of these by themselves (ip_local_port_range), and must not have the same: the kernel
// takes a backend's answers to the client's own connection for answers to ours, even
// when ours has ended (TIME_WAIT), and doesn't forward them (ip_forward: skb->sk).
const (
	lowPort   = 10000
	highPort  = 29999
	portTries = 16
)

// reach connects to a backend: from the client's address where the table wants the
// backend to see it and answers to it come by here, else from the node's own.
func (r *relay) reach(network string, v model.Verdict, backend netip.AddrPort) (net.Conn, error) {
	d := &net.Dialer{Timeout: r.dialTimeout}
	if !r.transparent.Load() || !keepsSource(r.current().Settings, v, backend) {
		return d.Dial(network, backend.String())
	}
	d.Control = makeTransparent
	for tries := 1; ; tries++ {
		port := uint16(lowPort + rand.IntN(highPort-lowPort+1))
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(v.Src, port))
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(v.Src, port))
		}
		conn, err := d.Dial(network, backend.String())
		taken := errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
		if !taken || tries == portTries {
			return conn, err
		}
	}
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
	return b.Local && !isNode(s, b.Addr) && !b.Addr.IsLoopback() && !v.Masquerades(b) && !v.Direct && kernel.AnswersPass(v.Src, b.Addr)
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
		if strings.HasPrefix(network, "tcp") { // the port may be that of a connection to another backend
			err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		}
	})
	return errors.Join(controlErr, err)
}
