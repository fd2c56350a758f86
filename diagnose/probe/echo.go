package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// The headers before an echo request's data (RFC 791, RFC 8200, RFC 792).
const (
	headers4 = 20 + 8
	headers6 = 40 + 8
)

// smallEcho is how much data a small ping has.
const smallEcho = 56

// Echo sends a ping that nobody may fragment: a small one, or one of the size that
// the route allows. It takes CAP_NET_RAW.
func (p Prober) Echo(ctx context.Context, from, to netip.Addr, full bool) (result string) {
	if from.IsValid() {
		at, err := p.at(from)
		if err != nil {
			return ""
		}
		defer at.NS.Close() //nolint:errcheck // nothing is left in it
		p = at
	}
	err := p.in(func() error {
		result = echoResult(ctx, to, full)
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return result
}

func echoResult(ctx context.Context, to netip.Addr, full bool) string {
	size := smallEcho
	if full {
		mtu, err := routeMTU(to)
		if err != nil {
			return err.Error()
		}
		if size = mtu - headers4; to.Is6() {
			size = mtu - headers6
		}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	switch err := echo(ctx, to, size); {
	case err == nil:
		return "ok"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer in %s to %d bytes", Timeout, size)
	case errors.Is(err, unix.EMSGSIZE):
		return "too long" // a router said so: no black hole
	default:
		return err.Error()
	}
}

// routeMTU is the largest packet that may be sent to an address.
func routeMTU(to netip.Addr) (int, error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, fmt.Errorf("find the route to %s: %w", to, err)
	}
	if routes[0].MTU > 0 {
		return routes[0].MTU, nil
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return 0, fmt.Errorf("find the interface to %s: %w", to, err)
	}
	return min(link.Attrs().MTU, maxPacket), nil
}

// maxPacket is the largest IP packet; the loopback interface's MTU is beyond it.
const maxPacket = 65535

// echo sends one request, and waits for its answer.
func echo(ctx context.Context, to netip.Addr, size int) (err error) {
	network, protocol := "ip4:icmp", 1
	var kind icmp.Type = ipv4.ICMPTypeEcho
	level, option, probe := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if to.Is6() {
		network, protocol, kind = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest
		level, option, probe = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, probe) }); err != nil {
			return err
		}
		return set
	}}
	conn, err := dialer.DialContext(ctx, network, to.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	id := int(time.Now().UnixNano()) & 0xffff
	request := icmp.Message{Type: kind, Body: &icmp.Echo{ID: id, Seq: 1, Data: make([]byte, size)}}
	data, err := request.Marshal(nil) // the kernel fills in ICMPv6's checksum
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(data); err != nil {
		return err
	}
	return answered(conn.(*net.IPConn), protocol, id)
}

// answered waits for the answer to the request with this number.
func answered(conn *net.IPConn, protocol, id int) error {
	buffer := make([]byte, maxPacket)
	for {
		n, _, err := conn.ReadFromIP(buffer) // without IPv4's header
		if err != nil {
			return err
		}
		message, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil {
			continue // somebody else's
		}
		if reply, ok := message.Body.(*icmp.Echo); ok && reply.ID == id &&
			(message.Type == ipv4.ICMPTypeEchoReply || message.Type == ipv6.ICMPTypeEchoReply) {
			return nil
		}
	}
}
