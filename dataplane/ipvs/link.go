package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nlmsg"
)

// dummy is the interface with the addresses of Services.
type dummy struct {
	handle *netlink.Handle
	bulk   *nlmsg.BulkSocket
	index  int // 0 if it isn't known to be there
	fault  fault
}

func openDummy() (*dummy, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	messages, err := nlmsg.OpenBulk(unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, err
	}
	return &dummy{handle: handle, bulk: messages}, nil
}

// find looks for the interface.
func (d *dummy) find() (bool, error) {
	if err := d.fault.next(); err != nil {
		return false, fmt.Errorf("find interface %s: %w", Interface, err)
	}
	found, err := d.handle.LinkByName(Interface)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		d.index = 0
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find interface %s: %w", Interface, err)
	}
	d.index = found.Attrs().Index
	return true, nil
}

// ensure makes the interface if it isn't there. It stays down, as kube-proxy
// leaves it: an address is local all the same, and nothing else comes of it.
func (d *dummy) ensure() error {
	if there, err := d.find(); there || err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Interface
	err := d.handle.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	switch {
	case errors.Is(err, unix.EPERM):
		return &kernel.MissingError{What: "CAP_NET_ADMIN", Err: err}
	case errors.Is(err, unix.EOPNOTSUPP):
		return &kernel.MissingError{What: "dummy interfaces", Err: err}
	case err != nil && !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("make interface %s: %w", Interface, err)
	}
	_, err = d.find()
	return err
}

// addresses lists the interface's addresses, without link-local ones.
func (d *dummy) addresses() (map[netip.Addr]bool, error) {
	list, err := kernel.List(func() ([]netlink.Addr, error) {
		if err := d.fault.next(); err != nil {
			return nil, err
		}
		return d.handle.AddrList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: d.index, Name: Interface}}, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", Interface, err)
	}
	found := map[netip.Addr]bool{}
	for _, entry := range list {
		if a, ok := netip.AddrFromSlice(entry.IP); ok && !a.Unmap().IsLinkLocalUnicast() {
			found[a.Unmap()] = true
		}
	}
	return found, nil
}

// localRoute is the route by which the kernel takes an address for its own.
func (d *dummy) localRoute(a netip.Addr) *netlink.Route {
	return &netlink.Route{
		LinkIndex: d.index, Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: unix.RTPROT_KERNEL,
	}
}

func (d *dummy) unbind(a netip.Addr) error {
	if err := d.fault.next(); err != nil {
		return fmt.Errorf("remove address %s from %s: %w", a, Interface, err)
	}
	l := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: d.index, Name: Interface}}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if err := d.handle.AddrDel(l, address); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove address %s from %s: %w", a, Interface, err)
	}
	if !a.Is4() {
		return nil
	}
	// The kernel takes only the route away that it made itself.
	if err := d.handle.RouteDel(d.localRoute(a)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route to address %s of %s: %w", a, Interface, err)
	}
	return nil
}

// remove takes the interface away, and with it its addresses.
func (d *dummy) remove() error {
	there, err := d.find()
	if err != nil || !there {
		return err
	}
	if err := d.fault.next(); err != nil {
		return fmt.Errorf("remove interface %s: %w", Interface, err)
	}
	if err := d.handle.LinkDel(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: d.index, Name: Interface}}); err != nil {
		return fmt.Errorf("remove interface %s: %w", Interface, err)
	}
	return nil
}
