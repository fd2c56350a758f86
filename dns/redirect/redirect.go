// Package redirect makes the kernel redirect questions to cluster DNS to the server
// on this node, untracked, while somebody renews the lease. If nobody does, for
// example because the process was killed, questions go where the data plane
// forwards the DNS Service: to other nodes' servers.
//
// The server listens at addresses that only this node has, and the kernel puts
// these in the place of the Service's in questions, and the other way round in
// answers, in a table of nftables before all others. So neither the data plane
// nor the machine's addresses and routes change when the lease begins or ends.
//
// A lease is renewed by a packet to oneself, not by a change of rules: that
// would disturb whoever reads or writes nftables at the time.
package redirect

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Interface holds the local addresses.
const Interface = "fairway-dns"

// Term is for how long a lease runs. It ends before any resolver asks again
// (musl: 2.5 s).
const Term = 2 * time.Second

// Lease is this process' share: it can renew the lease, and end it.
type Lease struct {
	ways     []way
	clients  []netip.Prefix
	renewals []*net.UDPConn
	rules    map[string]int // how many each of our chains has
}

// way is one of the Service's addresses and the one in its place on this node.
type way struct{ service, local netip.Addr }

// firstLocal4 and firstLocal6 are where the local addresses begin: of the
// link-local range (RFC 3927), and a unique local one (RFC 4193).
var (
	firstLocal4 = netip.MustParseAddr("169.254.53.53")
	firstLocal6 = netip.MustParseAddr("fdc4:7a1e:6b53::53")
)

func waysTo(services []netip.Addr) []way {
	next4, next6 := firstLocal4, firstLocal6
	var ways []way
	for _, a := range services {
		if a.Is4() {
			ways, next4 = append(ways, way{a, next4}), next4.Next()
		} else {
			ways, next6 = append(ways, way{a, next6}), next6.Next()
		}
	}
	return ways
}

// Open prepares a lease of the DNS Service's addresses, which begins with the
// first Renew. What an earlier process left is replaced. From other machines and from
// pods, only clients may ask; if there are none, everybody may.
func Open(services []netip.Addr, clients []netip.Prefix) (*Lease, error) {
	l := &Lease{ways: waysTo(services), clients: clients}
	err := l.addAddresses()
	for _, step := range []func() error{l.addLastRoutes, l.divert} {
		if err == nil {
			err = step()
		}
	}
	for _, w := range l.ways {
		if err != nil {
			break
		}
		err = l.openRenewal(w.local)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Addresses are where the server is to listen, at port 53.
func (l *Lease) Addresses() []netip.Addr {
	var list []netip.Addr
	for _, w := range l.ways {
		list = append(list, w.local)
	}
	return list
}

// renewalPort is where renewals are sent to, and end: discard (RFC 863).
const renewalPort = 9

func (l *Lease) openRenewal(at netip.Addr) error {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, renewalPort)))
	if err != nil {
		return fmt.Errorf("open socket for renewals: %w", err)
	}
	l.renewals = append(l.renewals, conn)
	return nil
}

// Repair makes the table, the interface and the routes anew if somebody removed one of the
// rules, the interface, or one of its addresses or of the routes, and reports whether
// somebody had.
func (l *Lease) Repair() (repaired bool, err error) {
	isWhole := true
	for _, has := range []func() (bool, error){l.hasRules, l.hasAddresses, l.hasLastRoutes} {
		there, err := has()
		if err != nil {
			return false, err
		}
		isWhole = isWhole && there
	}
	if isWhole {
		return false, nil
	}
	for _, step := range []func() error{l.addAddresses, l.addLastRoutes, l.divert} {
		if err := step(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasRules reports whether each of our chains has as many rules as it should.
func (l *Lease) hasRules() (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	for chain, want := range l.rules {
		have, err := conn.GetRules(table, &nftables.Chain{Name: chain, Table: table})
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("list rules of chain %s: %w", chain, err)
		}
		if len(have) != want {
			return false, nil
		}
	}
	return true, nil
}

// hasAddresses reports whether the interface is up and has all of its addresses.
func (l *Lease) hasAddresses() (bool, error) {
	link, err := netlink.LinkByName(Interface)
	if isMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find interface %s: %w", Interface, err)
	}
	list, err := kernel.List(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false, fmt.Errorf("list addresses of %s: %w", Interface, err)
	}
	for _, w := range l.ways {
		if !slices.ContainsFunc(list, func(a netlink.Addr) bool { return a.IP.Equal(w.local.AsSlice()) }) {
			return false, nil
		}
	}
	return link.Attrs().Flags&net.FlagUp != 0, nil
}

// Renew has questions go to this node's server until the lease ends.
func (l *Lease) Renew() error {
	var errs []error
	for _, conn := range l.renewals {
		if _, err := conn.Write(nil); err != nil {
			errs = append(errs, fmt.Errorf("renew the lease of %s: %w", conn.LocalAddr(), err))
		}
	}
	return errors.Join(errs...)
}

// Close gives up what the process holds. A lease that runs goes on to its end,
// and what leads the way stays for the next process.
func (l *Lease) Close() error {
	var errs []error
	for _, conn := range l.renewals {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// addAddresses makes an interface that leads nowhere with the local addresses.
func (l *Lease) addAddresses() error {
	link, err := netlink.LinkByName(Interface)
	if isMissing(err) {
		if err := addInterface(); err != nil {
			return err
		}
		link, err = netlink.LinkByName(Interface)
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", Interface, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring interface %s up: %w", Interface, err)
	}
	for _, w := range l.ways {
		// Of the link alone, lest the kernel masquerade with it what leaves elsewhere.
		addr := &netlink.Addr{IPNet: single(w.local), Scope: int(netlink.SCOPE_LINK)}
		if w.local.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("add address %s to %s: %w", w.local, Interface, err)
		}
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open rtnetlink socket: %w", err)
	}
	defer handle.Close()
	if err := kernel.AwaitLocal(handle, l.Addresses()); err != nil {
		return fmt.Errorf("use addresses of %s: %w", Interface, err)
	}
	return nil
}

// addLastRoutes lets processes of a machine that has no other route to the
// Service ask: a packet needs a route before it can be led elsewhere. The table
// (default) comes after all others; IPv6 has none like it.
func (l *Lease) addLastRoutes() error {
	for _, w := range l.ways {
		if w.service.Is6() {
			continue
		}
		route := lastRoute()
		route.Dst, route.Src = single(w.service), net.IPv4(127, 0, 0, 1)
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("add route to %s: %w", w.service, err)
		}
	}
	return nil
}

// hasLastRoutes reports whether the routes of addLastRoutes are there.
func (l *Lease) hasLastRoutes() (bool, error) {
	have, err := listLastRoutes()
	if err != nil {
		return false, err
	}
	for _, w := range l.ways {
		if w.service.Is4() && !slices.ContainsFunc(have, func(r netlink.Route) bool { return r.Dst != nil && r.Dst.IP.Equal(w.service.AsSlice()) }) {
			return false, nil
		}
	}
	return true, nil
}

func lastRoute() *netlink.Route {
	const loopback = 1 // LOOPBACK_IFINDEX
	return &netlink.Route{LinkIndex: loopback, Table: unix.RT_TABLE_DEFAULT, Scope: netlink.SCOPE_LINK, Protocol: kernel.RouteProtocol}
}

// listLastRoutes has the kernel pick them, of routes that may be very many.
func listLastRoutes() ([]netlink.Route, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	defer handle.Close()
	if err := handle.SetStrictCheck(true); err != nil {
		return nil, fmt.Errorf("have the kernel pick routes: %w", err)
	}
	filter := lastRoute()
	filter.Scope = netlink.SCOPE_UNIVERSE // by which the kernel doesn't pick any
	routes, err := kernel.List(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_OIF)
	})
	if errors.Is(err, unix.ENOENT) { // the kernel has no such table yet
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return routes, nil
}

func removeLastRoutes() error {
	routes, err := listLastRoutes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		if err := netlink.RouteDel(&r); err != nil {
			return fmt.Errorf("delete route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// addInterface makes a dummy, or where the kernel has none, a bridge without
// ports.
func addInterface() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Interface
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add interface %s: %w", Interface, err)
	}
	return nil
}

func isMissing(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// Leftovers names what Cleanup would remove.
func Leftovers() ([]string, error) {
	switch _, err := netlink.LinkByName(Interface); {
	case isMissing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find interface %s: %w", Interface, err)
	}
	return []string{"interface " + Interface + " with its addresses and rules"}, nil
}

// Cleanup removes what Open made, if there is any of it.
func Cleanup() error {
	link, err := netlink.LinkByName(Interface)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", Interface, err)
	}
	if err := errors.Join(removeTable(), removeLastRoutes()); err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !isMissing(err) {
		return fmt.Errorf("delete interface %s: %w", Interface, err)
	}
	return nil
}
