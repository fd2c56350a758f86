package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
)

// router is the address to dial: the peer's address or, if only an interface is given (BGP
// unnumbered), that of the router which answers on it.
func (s *session) router(ctx context.Context) (netip.Addr, error) {
	if s.peer.Interface == "" {
		return s.peer.Address, nil
	}
	address, err := solicit(ctx, s.peer.Interface)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the router on %s (spec.interface): %w", s.peer.Interface, err)
	}
	return address, nil
}

// advertisementTimeout is how long to wait for a router advertisement, and
// solicitInterval how often to ask for one meanwhile (RFC 4861).
const (
	advertisementTimeout = 15 * time.Second
	solicitInterval      = time.Second
)

// solicit finds the router on an interface's link and returns its link-local address. It
// sends a router solicitation itself: a kernel that forwards packets ignores router
// advertisements, so its neighbours and routes don't show the router.
func solicit(ctx context.Context, device string) (netip.Addr, error) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return netip.Addr{}, err
	}
	conn, err := icmp.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	p := conn.IPv6PacketConn()
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterAdvertisement)
	if err := errors.Join(p.SetICMPFilter(&filter), p.SetMulticastHopLimit(255), p.SetMulticastInterface(i),
		p.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagInterface, true), p.JoinGroup(i, &net.IPAddr{IP: net.IPv6linklocalallnodes})); err != nil {
		return netip.Addr{}, err
	}
	question, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterSolicitation, Body: &icmp.RawBody{Data: make([]byte, 4)}}).Marshal(nil)
	if err != nil {
		return netip.Addr{}, err
	}
	deadline := time.Now().Add(advertisementTimeout)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		if _, err := p.WriteTo(question, nil, &net.IPAddr{IP: net.IPv6linklocalallrouters, Zone: device}); err != nil {
			return netip.Addr{}, err
		}
		if err := p.SetReadDeadline(time.Now().Add(solicitInterval)); err != nil {
			return netip.Addr{}, err
		}
		if a, ok := awaitRouter(p, i); ok {
			return a, nil
		}
	}
	return netip.Addr{}, errors.Join(ctx.Err(), errors.New("no router advertisement came"))
}

// awaitRouter takes an advertisement from the link itself (hop limit 255), until
// the deadline.
func awaitRouter(p *ipv6.PacketConn, i *net.Interface) (netip.Addr, bool) {
	buffer := make([]byte, 1500)
	for {
		_, control, from, err := p.ReadFrom(buffer)
		if err != nil {
			return netip.Addr{}, false
		}
		source, ok := from.(*net.IPAddr)
		if !ok || control == nil || control.HopLimit != 255 || control.IfIndex != i.Index {
			continue
		}
		if a, ok := netip.AddrFromSlice(source.IP); ok && a.IsLinkLocalUnicast() {
			return a.WithZone(i.Name), true
		}
	}
}
