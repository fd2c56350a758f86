package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// InterfaceName is the interface that holds the DNS Service's addresses.
const InterfaceName = "fairway-dns"

// Hold makes the DNS Service's addresses this machine's own, so that questions
// don't leave it. Again is no error.
func Hold(addrs []netip.Addr) error {
	link, err := netlink.LinkByName(InterfaceName)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		if err := addInterface(); err != nil {
			return err
		}
		link, err = netlink.LinkByName(InterfaceName)
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", InterfaceName, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring interface %s up: %w", InterfaceName, err)
	}
	for _, ip := range addrs {
		bits := ip.BitLen()
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, bits)}}
		if ip.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("add address %s to %s: %w", ip, InterfaceName, err)
		}
	}
	return nil
}

// addInterface makes an interface that leads nowhere: a dummy, or where the
// kernel has none, a bridge without ports.
func addInterface() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = InterfaceName
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add interface %s: %w", InterfaceName, err)
	}
	return nil
}

// Cleanup removes what Hold and Untrack made, if there is any of it.
func Cleanup() error {
	var missing netlink.LinkNotFoundError
	if _, err := netlink.LinkByName(InterfaceName); errors.As(err, &missing) {
		return nil
	}
	return errors.Join(Track(), Release())
}

// Release removes the interface with its addresses; sockets bound to them stay.
func Release() error {
	link, err := netlink.LinkByName(InterfaceName)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", InterfaceName, err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("delete interface %s: %w", InterfaceName, err)
	}
	return nil
}
