package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

// Host is a network namespace with addresses: a node, a pod, a client, or the
// underlay.
type Host struct {
	// Name is the host's name within the lab.
	Name string
	// NS is its network namespace.
	NS *netns.NS
	// Addresses are the host's own: IPv4, then IPv6.
	Addresses []netip.Addr

	netlink *netlink.Handle
}

// Do runs fn inside the host's namespace (see netns.NS.Do).
func (h *Host) Do(fn func() error) error { return h.NS.Do(fn) }

// Start starts a command inside the host's namespace, under the host's name.
func (h *Host) Start(cmd *exec.Cmd) error { return h.NS.StartAs(cmd, h.Name, nil) }

// DialContext connects from the host: for net/http and such. It must be given
// addresses, not names.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := h.Do(func() (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// IPv4 is the host's IPv4 address.
func (h *Host) IPv4() netip.Addr { return h.Addresses[0] }

// IPv6 is the host's IPv6 address.
func (h *Host) IPv6() netip.Addr { return h.Addresses[1] }

// Route gives the host a route to a prefix through a gateway, for instance to
// the Service CIDR through a node.
func (h *Host) Route(to netip.Prefix, via netip.Addr) error {
	err := h.netlink.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()})
	if err != nil {
		return fmt.Errorf("route %v via %v on %s: %w", to, via, h.Name, err)
	}
	return nil
}

// openHost makes the host's namespace with its loopback up.
func openHost(name, namespace string, addresses []netip.Addr) (*Host, error) {
	ns, err := netns.Create(namespace)
	if err != nil {
		return nil, err
	}
	h := &Host{Name: name, NS: ns, Addresses: addresses}
	if err := h.init(); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

func (h *Host) init() error {
	var err error
	if h.netlink, err = h.NS.Netlink(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	// Duplicate address detection would leave IPv6 addresses unusable for a
	// second after they are added.
	if err := h.sysctl("net/ipv6/conf/all/accept_dad", "0"); err != nil {
		return err
	}
	if err := h.sysctl("net/ipv6/conf/default/accept_dad", "0"); err != nil {
		return err
	}
	return h.up("lo")
}

// newHost makes a namespace with an interface on the underlay.
func (l *Lab) newHost(name string, addresses []netip.Addr) (*Host, error) {
	h, err := openHost(name, HostNamespace(l.name, name), addresses)
	if err != nil {
		return nil, err
	}
	if err := l.attach(h); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

// attach connects the host to the bridge. The bridge's end of the link has the
// host's name, as far as interface names reach.
func (l *Lab) attach(h *Host) error {
	bridge, err := l.underlay.netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}
	port := netlink.NewLinkAttrs()
	port.Name = interfaceName(h.Name)
	port.MasterIndex = bridge.Attrs().Index
	veth := netlink.NewVeth(port)
	veth.PeerName, veth.PeerNamespace = NodeInterface, netlink.NsFd(h.NS.Fd())
	if err := l.underlay.netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s to the underlay: %w", h.Name, err)
	}
	if err := l.underlay.up(port.Name); err != nil {
		return err
	}
	if err := h.up(NodeInterface); err != nil {
		return err
	}
	for i, p := range []netip.Prefix{l.options.Underlay4, l.options.Underlay6} {
		if err := h.address(NodeInterface, netip.PrefixFrom(h.Addresses[i], p.Bits())); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) up(link string) error {
	l, err := h.netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s of %s: %w", link, h.Name, err)
	}
	if err := h.netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring link %s of %s up: %w", link, h.Name, err)
	}
	return nil
}

func (h *Host) address(link string, a netip.Prefix) error {
	l, err := h.netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s of %s: %w", link, h.Name, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := h.netlink.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("add address %v to link %s of %s: %w", a, link, h.Name, err)
	}
	if a.Addr().Is6() {
		if err := h.awaitAddress(l, a.Addr()); err != nil {
			return fmt.Errorf("use address %v of link %s of %s: %w", a, link, h.Name, err)
		}
	}
	return nil
}

// machineTimeout is how long a machine may take for what takes it milliseconds.
const machineTimeout = 30 * time.Second

// awaitAddress waits until an IPv6 address is the host's. The kernel adds its route
// to the table local a while after it has taken in the address (addrconf_dad_work in
// net/ipv6/addrconf.c), and until then asks the link for it.
func (h *Host) awaitAddress(link netlink.Link, a netip.Addr) error {
	for deadline := time.Now().Add(machineTimeout); ; time.Sleep(time.Millisecond) {
		routes, err := h.netlink.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{OifIndex: link.Attrs().Index})
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("the routes to it are %v", routes), err)
		}
	}
}

// sysctl writes a kernel setting of the host's namespace, such as
// "net/ipv4/ip_forward".
func (h *Host) sysctl(path, value string) error {
	return h.NS.Do(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl of %s: %w", h.Name, err)
		}
		return nil
	})
}

// close gives up the open handles and leaves the namespace in place.
func (h *Host) close() error {
	if h.netlink != nil {
		h.netlink.Close()
	}
	return h.NS.Close()
}

func (h *Host) remove() error {
	return errors.Join(h.close(), netns.Remove(h.NS.Name()))
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
