package topology

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// The link between the router and the client.
const (
	routerName      = "router"
	routerInterface = "client" // on the router
	clientInterface = "router" // on the client
)

var (
	behind4 = netip.MustParsePrefix("172.31.0.0/30")
	behind6 = netip.MustParsePrefix("fd00:172:31::/64")
)

// AddRouter puts a router between the nodes and the client, which has its default
// route through it then, by a link of their own. The router's routes are for a
// routing daemon to set.
func (l *Lab) AddRouter() (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkHost(routerName); err != nil {
		return nil, err
	}
	const own4, own6 = 99<<8 | 1, 2<<16 | 1 // 172.30.99.1, fd00:172:30::2:1
	r, err := l.newHost(routerName, []netip.Addr{nth(l.options.Underlay4, own4), nth(l.options.Underlay6, own6)})
	if err != nil {
		return nil, fmt.Errorf("add router: %w", err)
	}
	if err := errors.Join(r.forward(), r.serve(l.client)); err != nil {
		return nil, errors.Join(fmt.Errorf("add router: %w", err), r.remove())
	}
	for _, n := range l.nodes {
		if err := errors.Join(n.Route(behind4, r.IPv4()), n.Route(behind6, r.IPv6())); err != nil {
			return nil, errors.Join(fmt.Errorf("add router: %w", err), r.remove())
		}
	}
	l.clients[routerName] = r
	return r, nil
}

// forward has the host forward, and spread connections over equal routes.
func (h *Host) forward() error {
	var errs []error
	for _, s := range []struct{ path, value string }{
		{"net/ipv4/ip_forward", "1"},
		{"net/ipv6/conf/all/forwarding", "1"},
		{"net/ipv4/conf/all/rp_filter", "2"},
		{"net/ipv4/conf/all/send_redirects", "0"},
		{"net/ipv4/fib_multipath_hash_policy", "1"},
		{"net/ipv6/fib_multipath_hash_policy", "1"},
	} {
		errs = append(errs, h.sysctl(s.path, s.value))
	}
	return errors.Join(errs...)
}

// serve links the router to the client, whose default route leads here then.
func (h *Host) serve(client *Host) error {
	near := netlink.NewLinkAttrs()
	near.Name = routerInterface
	veth := netlink.NewVeth(near)
	veth.PeerName, veth.PeerNamespace = clientInterface, netlink.NsFd(client.NS.Fd())
	if err := h.netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link the client to the router: %w", err)
	}
	if err := errors.Join(h.up(routerInterface), client.up(clientInterface)); err != nil {
		return err
	}
	for i, p := range []netip.Prefix{behind4, behind6} {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if i == 1 {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := errors.Join(
			h.address(routerInterface, netip.PrefixFrom(nth(p, 1), p.Bits())),
			client.address(clientInterface, netip.PrefixFrom(nth(p, 2), p.Bits())),
			client.Route(all, nth(p, 1)),
		); err != nil {
			return err
		}
	}
	return nil
}
