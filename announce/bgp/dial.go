package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/internal/kernel"
)

// dial connects to a router as its peer's settings ask.
func dial(ctx context.Context, p *announce.Peer, address netip.Addr) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout: routerTimeout, KeepAlive: -1,
		Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { failed = setOptions(int(fd), p, address) })
			return errors.Join(err, failed)
		},
	}
	if p.Source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Source, 0))
	}
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address, p.Port).String())
	if err != nil {
		var timeout net.Error
		if p.Password != "" && errors.As(err, &timeout) && timeout.Timeout() {
			return nil, fmt.Errorf("%w (a router with another password, or none, does not answer)", err)
		}
		return nil, err
	}
	return conn, nil
}

func setOptions(fd int, p *announce.Peer, address netip.Addr) error {
	if p.VRF != "" {
		if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, p.VRF); err != nil {
			return fmt.Errorf("bind to VRF %s (spec.vrf): %w", p.VRF, err)
		}
	}
	if !p.Internal {
		ttl := 1
		if p.MultiHop {
			ttl = 255
		}
		level, option := unix.IPPROTO_IP, unix.IP_TTL
		if address.Is6() {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		}
		if err := unix.SetsockoptInt(fd, level, option, ttl); err != nil {
			return fmt.Errorf("set TTL: %w", err)
		}
	}
	if p.Password != "" {
		if err := setMD5(fd, p.Password, address); err != nil {
			return fmt.Errorf("set password: %w", err)
		}
	}
	// A dead connection must not outlive the hold time in the kernel's retries.
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(p.HoldTime, routerTimeout)/time.Millisecond))
}

// maxPassword is the kernel's limit (TCP_MD5SIG_MAXKEYLEN).
const maxPassword = 80

func setMD5(fd int, password string, address netip.Addr) error {
	if len(password) > maxPassword {
		return fmt.Errorf("it has %d bytes, and at most %d are possible", len(password), maxPassword)
	}
	sig := &unix.TCPMD5Sig{Keylen: uint16(len(password))}
	copy(sig.Key[:], password)
	if address.Is4() {
		sig.Addr.Family = unix.AF_INET
		copy(sig.Addr.Data[2:], address.AsSlice())
	} else {
		sig.Addr.Family = unix.AF_INET6
		copy(sig.Addr.Data[6:], address.AsSlice())
	}
	return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, sig)
}

// localAddress is this side's address of a connection.
func localAddress(c net.Conn) netip.Addr {
	if a, ok := c.LocalAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// sibling is an address of a family on the interface that has another address;
// not valid if there is none. Link-local ones don't count, nor those that are about to go:
// temporary (RFC 8981) and deprecated ones.
func sibling(of netip.Addr, want6 bool) netip.Addr {
	interfaces, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}
	}
	passing := passingAddresses()
	for _, i := range interfaces {
		list, err := i.Addrs()
		if err != nil {
			continue
		}
		addresses := prefixAddresses(list)
		if !slices.Contains(addresses, of.WithZone("")) || of.Zone() != "" && of.Zone() != i.Name {
			continue
		}
		for _, a := range addresses {
			if a.Is6() == want6 && a.IsGlobalUnicast() && !passing[a] {
				return a
			}
		}
	}
	return netip.Addr{}
}

// passingAddresses are those of this node that are no address to be reached at for long.
func passingAddresses() map[netip.Addr]bool {
	const passing = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
	list, err := kernel.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V6) })
	if err != nil {
		return nil // then all count
	}
	found := map[netip.Addr]bool{}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && a.Flags&passing != 0 {
			found[ip] = true
		}
	}
	return found
}

// IsNeighbor reports whether an address is in a network of one of this node's
// interfaces, so that no router is in between.
func IsNeighbor(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return a.IsLinkLocalUnicast() || slices.ContainsFunc(list, func(own net.Addr) bool {
		p, err := netip.ParsePrefix(own.String())
		return err == nil && p.Contains(a)
	})
}

func prefixAddresses(list []net.Addr) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addresses = append(addresses, p.Addr().Unmap())
		}
	}
	return addresses
}
