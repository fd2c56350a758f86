package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dns/lease"
	"github.com/fairway-net/fairway/internal/kernel"
)

// virtualAddresses is the interface that the ipvs plane and kube-proxy's ipvs
// mode keep Service addresses on; they are not the node's own.
const virtualAddresses = "kube-ipvs0"

// localAddresses lists the addresses of this machine, loopback included and
// link-local ones not, sorted.
func localAddresses() ([]netip.Addr, error) {
	skip := map[int]bool{}
	for _, name := range []string{virtualAddresses, lease.Interface} {
		if link, err := netlink.LinkByName(name); err == nil {
			skip[link.Attrs().Index] = true
		}
	}
	found, err := kernel.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var addrs []netip.Addr
	for _, a := range found {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || skip[a.LinkIndex] || ip.IsLinkLocalUnicast() {
			continue
		}
		addrs = append(addrs, ip)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

// watchAddresses calls changed with the addresses of this machine at once and
// whenever they change, until ctx is done. What a lost notification would have
// told is found out after a while.
func watchAddresses(ctx context.Context, changed func([]netip.Addr)) error {
	updates := make(chan netlink.AddrUpdate, 64)
	if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	const lookAgain = 30 * time.Second
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	var last []netip.Addr
	for first := true; ; first = false {
		addrs, err := localAddresses()
		if err != nil {
			return err
		}
		if first || !slices.Equal(addrs, last) {
			last = addrs
			changed(slices.Clone(addrs))
		}
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-updates:
			if !open { // the socket broke: poll instead
				updates = nil
			}
		case <-ticker.C:
		}
	}
}

// primaryAddress is the address that this machine would use towards others:
// that of the default route, else the first that is global.
func primaryAddresses(all []netip.Addr) []netip.Addr {
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
