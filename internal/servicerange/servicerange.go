// Package servicerange checks whether a range of addresses can be used for Services on
// this machine. Packets to such addresses never leave the machine, so nothing that
// the machine talks to may have one of them.
package servicerange

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// use is what the machine has addresses for.
type use struct {
	prefix netip.Prefix
	what   string
	link   int // index of the interface
}

// Check returns an error if the range contains an address or a route of this
// machine. It names the flag, both, and a range of the same size that is free.
// Addresses of Services that an earlier run left don't count.
func Check(flag string, wanted netip.Prefix) error {
	used, err := inUse()
	if err != nil {
		return err
	}
	return check(flag, wanted, used)
}

// CheckUplink returns an error if a range that pods have their addresses from
// contains an address of the interface by which this machine reaches others.
// Bridges and routes of pods lie within such a range on purpose.
func CheckUplink(flag string, wanted netip.Prefix) error {
	used, err := inUse()
	if err != nil {
		return err
	}
	uplinks, err := defaultLinks()
	if err != nil {
		return err
	}
	for _, u := range used {
		if u.prefix.IsSingleIP() && uplinks[u.link] {
			if err := check(flag, wanted, []use{u}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Uplink are the addresses of the interfaces by which this machine reaches others: those
// that have a default route, or the address at. Link-local addresses aren't among them.
func Uplink(at netip.Addr) (addresses []netip.Addr, err error) {
	used, err := inUse()
	if err != nil {
		return nil, err
	}
	links, err := defaultLinks()
	if err != nil {
		return nil, err
	}
	for _, u := range used {
		if u.prefix.IsSingleIP() && u.prefix.Addr() == at && !at.IsLoopback() {
			links[u.link] = true
		}
	}
	for _, u := range used {
		if a := u.prefix.Addr(); u.prefix.IsSingleIP() && links[u.link] && !a.IsLinkLocalUnicast() && !a.IsLoopback() && strings.HasPrefix(u.what, "the address") {
			addresses = append(addresses, a)
		}
	}
	return addresses, nil
}

// defaultLinks are the interfaces that have a default route.
func defaultLinks() (map[int]bool, error) {
	routes, err := kernel.List(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	links := map[int]bool{}
	for _, r := range routes {
		if _, ok := destination(r.Dst); !ok {
			links[r.LinkIndex] = true
		}
	}
	return links, nil
}

func check(flag string, wanted netip.Prefix, used []use) error {
	for _, u := range used {
		if wanted.Bits() <= u.prefix.Bits() && wanted.Contains(u.prefix.Addr()) {
			advice := ""
			if free, ok := propose(wanted, used); ok {
				advice = fmt.Sprintf("; %s is free", free)
			}
			return fmt.Errorf("%s %s contains %s%s", flag, wanted, u.what, advice)
		}
	}
	return nil
}

// propose returns a private range as large as the wanted one that overlaps
// nothing in use.
func propose(wanted netip.Prefix, used []use) (netip.Prefix, bool) {
	for second := range 256 {
		candidate := netip.AddrFrom4([4]byte{10, byte(96 + second), 0, 0})
		if wanted.Addr().Is6() {
			candidate = netip.AddrFrom16([16]byte{0: 0xfd, 3: byte(96 + second)})
		}
		prefix := netip.PrefixFrom(candidate, wanted.Bits()).Masked()
		if prefix != wanted && !overlaps(prefix, used) {
			return prefix, true
		}
	}
	return netip.Prefix{}, false
}

func overlaps(p netip.Prefix, used []use) bool {
	for _, u := range used {
		if p.Overlaps(u.prefix) {
			return true
		}
	}
	return false
}

// ownLink says whether an interface is one of ours: they have addresses of
// Services on purpose.
func ownLink(name string) bool {
	return name == "kube-ipvs0" || strings.HasPrefix(name, "fairway")
}

// inUse returns the machine's addresses, and the destinations of its routes but
// the default ones.
func inUse() ([]use, error) {
	links, err := kernel.List(netlink.LinkList)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	// Of all interfaces at once: the kernel lists all addresses, whichever one is asked for.
	addresses, err := kernel.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var used []use
	ours := map[int]bool{}
	names := map[int]string{}
	for _, link := range links {
		index, name := link.Attrs().Index, link.Attrs().Name
		names[index], ours[index] = name, ownLink(name)
	}
	for _, a := range addresses {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !ours[a.LinkIndex] {
			addr = addr.Unmap()
			used = append(used, use{netip.PrefixFrom(addr, addr.BitLen()), fmt.Sprintf("the address %s of %s", addr, names[a.LinkIndex]), a.LinkIndex})
		}
	}
	routes, err := kernel.List(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if prefix, ok := destination(r.Dst); ok && !ours[r.LinkIndex] {
			used = append(used, use{prefix, fmt.Sprintf("the route to %s by %s", prefix, names[r.LinkIndex]), r.LinkIndex})
		}
	}
	return used, nil
}

func destination(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr.Unmap(), bits), true
}
