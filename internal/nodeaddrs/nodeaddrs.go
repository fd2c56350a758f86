// Package nodeaddrs follows the addresses of this machine.
package nodeaddrs

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/kernel/netevents"
)

// List lists the addresses of this machine, loopback included and link-local ones not,
// sorted. Interfaces that are left out have none of its own.
func List(except ...string) ([]netip.Addr, error) {
	addrs, _, err := list(except)
	return addrs, err
}

// list also gives the indices of the interfaces that were left out.
func list(except []string) (addrs []netip.Addr, skip map[int]bool, err error) {
	skip = map[int]bool{}
	for _, name := range except {
		if link, err := netlink.LinkByName(name); err == nil {
			skip[link.Attrs().Index] = true
		}
	}
	found, err := kernel.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range found {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || skip[a.LinkIndex] || ip.IsLinkLocalUnicast() {
			continue
		}
		addrs = append(addrs, ip)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), skip, nil
}

// pause is between two lists of addresses, however fast they change.
const pause = 200 * time.Millisecond

// Watch calls changed with the addresses of this machine at once and whenever they change,
// until ctx is done. Those of interfaces that are left out, of which there may be many
// thousand, are no reason to look.
func Watch(ctx context.Context, log *slog.Logger, changed func([]netip.Addr), except ...string) error {
	events, err := netevents.Open(unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return err
	}
	look := make(chan struct{}, 1)
	signal := func() {
		select {
		case look <- struct{}{}:
		default: // somebody will look anyway
		}
	}
	var foreign atomic.Pointer[map[int]bool]
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return events.Run(ctx, netevents.Handler{
			Message: func(m syscall.NetlinkMessage) {
				skip := foreign.Load()
				if skip == nil || len(m.Data) < unix.SizeofIfAddrmsg || !(*skip)[int(nl.DeserializeIfAddrmsg(m.Data).Index)] {
					signal()
				}
			},
			Lost: func() { signal() },
		})
	})
	group.Go(func() error {
		var last []netip.Addr
		for first := true; ; {
			addrs, skip, err := list(except)
			switch {
			case err != nil:
				log.Warn("the node's addresses can't be read; trying again", "error", err)
				signal()
			case first || !slices.Equal(addrs, last):
				first, last = false, addrs
				changed(slices.Clone(addrs))
			}
			if err == nil {
				foreign.Store(&skip)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			select {
			case <-ctx.Done():
				return nil
			case <-look:
			}
		}
	})
	return group.Wait()
}

// Primary are the addresses that this machine would use towards others, one of each
// family: that of the default route, else the first that is global.
func Primary(all []netip.Addr) []netip.Addr {
	var primary []netip.Addr
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if a, ok := routedSource(family); ok && slices.Contains(all, a) {
			primary = append(primary, a)
			continue
		}
		for _, a := range all {
			if a.Is4() == (family == unix.AF_INET) && !a.IsLoopback() {
				primary = append(primary, a)
				break
			}
		}
	}
	return primary
}

// routedSource asks the kernel for the source of packets to a public address
// (of the documentation ranges, RFC 5737 and RFC 3849); nothing is sent.
func routedSource(family int) (netip.Addr, bool) {
	target := net.ParseIP("203.0.113.1")
	if family == unix.AF_INET6 {
		target = net.ParseIP("2001:db8::1")
	}
	routes, err := netlink.RouteGet(target)
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(routes[0].Src)
	return a.Unmap(), ok
}
