package packet

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// linkOfPods is enum link_flags.
const linkOfPods = 1

// syncAll brings all interfaces to what they should be.
func (p *Path) syncAll() error {
	list, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	live := map[int]bool{}
	for _, l := range list {
		live[l.Attrs().Index] = true
	}
	if err := errors.Join(p.forgetLinks(live), p.forgetDrivers(live), p.syncDefault()); err != nil {
		return err
	}
	addresses, err := p.addresses()
	if err != nil {
		return err
	}
	var noRoom error
	kinds := kindsOf(list)
	for _, l := range list {
		index := l.Attrs().Index
		if err := p.sync(l, kinds[index], addresses[index]); err != nil {
			if !kernel.IsFull(err) {
				return err
			}
			noRoom = err
		}
	}
	return errors.Join(noRoom, p.attacher.forget(kinds))
}

// sync brings one interface to what it should be. One that goes meanwhile is no
// error.
func (p *Path) sync(l netlink.Link, kind linkKind, addresses []netlink.Addr) error {
	name := l.Attrs().Name
	p.logUnserved(l, kind, addresses)
	if len(sidePrograms[kind]) == 0 {
		if err := p.attacher.release(l, kind); err != nil && !isGone(err) {
			return fmt.Errorf("detach programs from interface %s: %w", name, err)
		}
		return p.syncDriver(l, kind, addresses)
	}
	if err := p.need(slices.Collect(maps.Values(sidePrograms[kind]))...); err != nil {
		return err
	}
	programs := bySide{}
	for side, name := range sidePrograms[kind] {
		programs[side] = p.programs[name]
	}
	// One that there is no room for is taken for one of all the others.
	noRoom := p.describe(l, addresses)
	if err := noRoom; err != nil && !isGone(err) && !kernel.IsFull(err) {
		return fmt.Errorf("describe interface %s: %w", name, err)
	}
	there, err := p.attacher.attached(l, slices.Sorted(maps.Keys(programs)))
	if err == nil && !there {
		err = p.attacher.attach(l, programs)
	}
	if err == nil { // it may have been no part of another before
		err = p.attacher.release(l, kind)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("attach programs to interface %s: %w", name, err)
	}
	if err := p.syncDriver(l, kind, addresses); err != nil && !isGone(err) {
		return fmt.Errorf("attach program to the driver of interface %s: %w", name, err)
	}
	if noRoom != nil && kernel.IsFull(noRoom) {
		return noRoom
	}
	return p.Steps.At("interface done")
}

// A linkKind is what an interface's packets begin with, and which of them are handled
// there: each packet at one interface, though it may pass several.
type linkKind int

const (
	notForServices linkKind = iota // Service traffic doesn't go through it
	ethernet
	noHeader // tunnels, for instance
	loopback
	port // of a bridge: what comes in is handled at the bridge itself, and what goes from port to port here
	part // of a bond or team: everything is handled there
)

// sidePrograms are the programs for each kind of interface: side to name.
var sidePrograms = map[linkKind]map[string]string{
	ethernet: {egressSide: "egress", ingressSide: "ingress"},
	noHeader: {egressSide: "egress_l3", ingressSide: "ingress_l3"},
	loopback: {egressSide: "loopback"},
	port:     {bridgedSide: "bridged"},
}

// kindsOf are those of all interfaces, by their numbers.
func kindsOf(list []netlink.Link) map[int]linkKind {
	all, kinds := map[int]netlink.Link{}, map[int]linkKind{}
	for _, l := range list {
		all[l.Attrs().Index] = l
	}
	for index, l := range all {
		kinds[index] = kindOf(l, all[l.Attrs().MasterIndex])
	}
	return kinds
}

// kindOf is that of an interface; master is the one that it belongs to, or nil.
func kindOf(l, master netlink.Link) linkKind {
	switch a := l.Attrs(); {
	case a.Flags&net.FlagLoopback != 0:
		return loopback
	case master != nil && (master.Type() == "bond" || master.Type() == "team"):
		return part
	case master != nil && master.Type() != "vrf" && a.EncapType == "ether":
		return port // of a bridge of the kernel's, or of Open vSwitch
	case a.EncapType == "ether":
		return ethernet
	case slices.Contains([]string{"none", "rawip", "ipip", "sit", "gre", "tunnel6", "ppp"}, a.EncapType):
		return noHeader
	}
	return notForServices
}

// logUnserved says once of an interface that is in use that nothing, or not all, is served there.
func (p *Path) logUnserved(l netlink.Link, kind linkKind, addresses []netlink.Addr) {
	a := l.Attrs()
	if kind != notForServices && l.Type() != "ipvlan" || len(addresses) == 0 || a.Flags&net.FlagUp == 0 || p.unserved[a.Name] {
		return
	}
	if p.unserved == nil {
		p.unserved = map[string]bool{}
	}
	p.unserved[a.Name] = true
	slog.Warn("ebpf mode can't serve Services at an interface of this kind; another mode can", "interface", a.Name, "kind", l.Type())
}

// isGone reports whether an error says that there is no such interface.
func isGone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.Is(err, unix.ENODEV) || errors.As(err, &missing)
}

// addresses are those of all interfaces, by their numbers. The kernel lists all
// of them for one interface, too.
func (p *Path) addresses() (map[int][]netlink.Addr, error) {
	list, err := kernel.List(func() ([]netlink.Addr, error) { return p.netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	of := map[int][]netlink.Addr{}
	for _, a := range list {
		of[a.LinkIndex] = append(of[a.LinkIndex], a)
	}
	return of, nil
}

// describe tells the programs what they need to know of an interface.
func (p *Path) describe(l netlink.Link, addresses []netlink.Addr) error {
	entry := tcLink{}
	if p.settings.Pods.Matches(netip.Addr{}, l.Attrs().Name) {
		entry.Flags = linkOfPods
	}
	if len(addresses) > 0 {
		for _, v6 := range []bool{false, true} {
			if a := p.routeSource(l.Attrs().Index, v6); hasAddress(addresses, a) {
				entry.setOwn(a, false)
			}
		}
	}
	for _, a := range addresses {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || a.Scope != int(netlink.SCOPE_UNIVERSE) || a.Flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_TENTATIVE) != 0 {
			continue
		}
		entry.setOwn(addr.Unmap(), false)
	}
	for _, a := range []netip.Addr{p.defaultSource(false), p.defaultSource(true)} {
		entry.setOwn(a, false)
	}
	return p.putLink(uint32(l.Attrs().Index), entry)
}

// setOwn notes the node's address for packets that leave through the interface,
// unless there is one already.
func (l *tcLink) setOwn(a netip.Addr, replace bool) {
	raw := a.As16()
	switch {
	case a.Is4() && (l.Ip4 == 0 || replace):
		l.Ip4 = native32(raw[12:])
	case a.Is6() && (l.Ip6.Word == [4]uint32{} || replace):
		for i := range l.Ip6.Word {
			l.Ip6.Word[i] = native32(raw[4*i:])
		}
	}
}

// routeSource is the address that routes prefer for what leaves to the outside through an
// interface, which isn't always its first one.
func (p *Path) routeSource(index int, v6 bool) netip.Addr {
	routes, err := p.netlink.RouteGetWithOptions(outside(v6), &netlink.RouteGetOptions{OifIndex: index})
	if err != nil || len(routes) == 0 {
		return netip.Addr{} // no route leads there
	}
	a, _ := netip.AddrFromSlice(routes[0].Src)
	return a.Unmap()
}

func hasAddress(list []netlink.Addr, a netip.Addr) bool {
	return a.IsValid() && slices.ContainsFunc(list, func(one netlink.Addr) bool {
		return one.Scope == int(netlink.SCOPE_UNIVERSE) && one.IP.Equal(a.AsSlice())
	})
}

// outside is an address that is nowhere near: of RFC 5737, or of RFC 3849.
func outside(v6 bool) net.IP {
	if v6 {
		return net.ParseIP("2001:db8::1")
	}
	return net.IPv4(192, 0, 2, 1)
}

// defaultSource is the address that the node itself would use for the outside,
// or its first one. It stands in where an interface has none, as those of pods.
func (p *Path) defaultSource(v6 bool) netip.Addr {
	if routes, err := p.netlink.RouteGet(outside(v6)); err == nil && len(routes) > 0 {
		if a, ok := netip.AddrFromSlice(routes[0].Src); ok && p.isOwn(a.Unmap()) {
			return a.Unmap()
		}
	}
	for _, a := range p.settings.NodeAddrs {
		if a.Is6() == v6 && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			return a
		}
	}
	return netip.Addr{}
}

func (p *Path) isOwn(a netip.Addr) bool {
	return a.IsValid() && !a.IsLoopback() && !a.IsUnspecified()
}

// syncDefault describes the interfaces that the programs don't know yet.
func (p *Path) syncDefault() error {
	entry := tcLink{}
	entry.setOwn(p.defaultSource(false), false)
	entry.setOwn(p.defaultSource(true), false)
	return p.putLink(0, entry)
}

// putLink writes an entry if it is another than what is there.
func (p *Path) putLink(index uint32, entry tcLink) error {
	var have tcLink
	if err := p.links.Lookup(index, &have); err == nil && have == entry {
		return nil
	}
	err := p.links.Put(index, entry)
	if errors.Is(err, unix.E2BIG) {
		return &kernel.FullError{What: "the eBPF map links", LeftOut: 1}
	}
	if err != nil {
		return fmt.Errorf("write interface %d: %w", index, err)
	}
	return nil
}

// forgetLinks removes the entries of interfaces that are no more.
func (p *Path) forgetLinks(live map[int]bool) error {
	var index uint32
	var entry tcLink
	var gone []uint32
	all := p.links.Iterate()
	for all.Next(&index, &entry) {
		if index != 0 && !live[int(index)] {
			gone = append(gone, index)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read interfaces: %w", err)
	}
	for _, index := range gone {
		if err := p.links.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete interface %d: %w", index, err)
		}
	}
	return nil
}
