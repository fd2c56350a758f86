package userspace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// routeProtocol marks our routes (rtm_protocol, linux/rtnetlink.h: 4 to 255 are
// for user space; nothing known uses this one).
const routeProtocol = 143

// readRoutes lists our routes in the local table.
func readRoutes() (routeSet, error) {
	routes := routeSet{}
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: routeProtocol}
	for _, family := range families {
		list, err := kernel.List(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil && !noFamily(err) {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			if p, ok := prefixOf(r.Dst); ok {
				routes[p] = struct{}{}
			}
		}
	}
	return routes, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

// addRoute adds a route; one that is there already is none to complain of.
// Processes of this node reach for IPv4 addresses that are its own with those
// themselves for their source, which would be nobody's when the route is gone
// while connections go on. So the route names the source that they have without it.
func addRoute(p netip.Prefix) error {
	r := route(p)
	if p.Addr().Is4() {
		there, err := netlink.RouteGet(p.Addr().AsSlice())
		if err == nil && len(there) > 0 && !there[0].Src.Equal(p.Addr().AsSlice()) && !there[0].Src.IsLoopback() {
			r.Src = there[0].Src
		}
	}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("add local route %s: %w", p, err)
	}
	return nil
}

// deleteRoute removes a route; one that isn't there is none to complain of.
func deleteRoute(p netip.Prefix) error {
	if err := netlink.RouteDel(route(p)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete local route %s: %w", p, err)
	}
	return nil
}

func route(p netip.Prefix) *netlink.Route {
	r := &netlink.Route{
		Dst:       &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		Table:     unix.RT_TABLE_LOCAL,
		Protocol:  routeProtocol,
		Type:      unix.RTN_LOCAL,
		LinkIndex: loopback,
	}
	if p.Addr().Is4() {
		r.Scope = netlink.SCOPE_HOST
	}
	return r
}

// watchRoutes calls gone with each route of ours that somebody deletes, until
// done is closed.
func watchRoutes(done <-chan struct{}, gone func(netip.Prefix)) error {
	updates := make(chan netlink.RouteUpdate, 64)
	if err := netlink.RouteSubscribe(updates, done); err != nil {
		return fmt.Errorf("watch routes: %w", err)
	}
	go func() {
		for u := range updates {
			if u.Type != unix.RTM_DELROUTE || u.Protocol != routeProtocol {
				continue
			}
			if p, ok := prefixOf(u.Dst); ok {
				gone(p)
			}
		}
	}()
	return nil
}
