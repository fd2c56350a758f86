package userspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/kernel/netevents"
	"github.com/fairway-net/fairway/internal/nlmsg"
)

// routeProtocol marks our routes.
const routeProtocol = kernel.RouteProtocol

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

// ipv6IsOff reports whether IPv6 is switched off at the loopback interface, which routes of
// ours lead to: there can be none then, and nothing that they are missed for.
func ipv6IsOff() bool {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	return errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(off)) == "1"
}

// deleteRoute removes a route; one that isn't there is none to complain of.
func deleteRoute(p netip.Prefix) error {
	if err := netlink.RouteDel(route(p)); err != nil && !absent(err) {
		return fmt.Errorf("delete local route %s: %w", p, err)
	}
	return nil
}

// hasRoute reports whether a route of ours is there now; false if that can't be
// found out.
func hasRoute(p netip.Prefix) bool {
	found, err := netlink.RouteGetWithOptions(p.Addr().AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(found) == 0 {
		return false
	}
	to, ok := prefixOf(found[0].Dst)
	return ok && to == p && found[0].Protocol == routeProtocol
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

// watchRoutes calls changed when somebody deletes a route of ours, with the route,
// and when messages were lost, with an invalid one; until done is closed.
func watchRoutes(done <-chan struct{}, changed func(netip.Prefix)) error {
	w, err := netevents.Open(unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-done
		cancel()
	}()
	go func() {
		err := w.Run(ctx, netevents.Handler{
			Message: func(m syscall.NetlinkMessage) {
				if p, ok := deletedRoute(m); ok {
					changed(p)
				}
			},
			Lost: func() { changed(netip.Prefix{}) },
		})
		if err != nil {
			changed(netip.Prefix{}) // the periodic comparison finds what comes from now on
		}
	}()
	return nil
}

// deletedRoute reads a message (struct rtmsg, linux/rtnetlink.h) that a route of
// ours is gone.
func deletedRoute(m syscall.NetlinkMessage) (netip.Prefix, bool) {
	if m.Header.Type != unix.RTM_DELROUTE || len(m.Data) < unix.SizeofRtMsg {
		return netip.Prefix{}, false
	}
	header := nl.DeserializeRtMsg(m.Data)
	to, ok := netip.AddrFromSlice(nlmsg.Attributes(m.Data[unix.SizeofRtMsg:]).Get(unix.RTA_DST))
	return netip.PrefixFrom(to, int(header.Dst_len)), ok && header.Protocol == routeProtocol
}
