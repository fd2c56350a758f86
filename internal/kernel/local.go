package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RouteProtocol marks routes as ours (rtm_protocol, linux/rtnetlink.h: 4 to 255 are
// for user space; nothing known uses this one).
const RouteProtocol = 143

// localTimeout is how long the kernel may take for what takes it milliseconds.
const localTimeout = 10 * time.Second

// fewRoutes is up to how many routes are asked for one by one.
const fewRoutes = 32

// AwaitLocal waits until packets to addresses that were just added are for this
// machine. The kernel adds the route of an IPv6 address to the table local a while
// after it has taken in the address (addrconf_dad_work in net/ipv6/addrconf.c). Until
// then it forwards packets to the address, and nobody can listen at it. IPv4 addresses
// have their routes at once.
func AwaitLocal(h *netlink.Handle, addresses []netip.Addr) error {
	waiting := slices.DeleteFunc(slices.Clone(addresses), netip.Addr.Is4)
	for deadline := time.Now().Add(localTimeout); len(waiting) > 0; time.Sleep(time.Millisecond) {
		isLocal := func(a netip.Addr) bool { return leadsHere(h, a) }
		if len(waiting) > fewRoutes {
			local, err := localAddresses(h)
			if err != nil {
				return fmt.Errorf("list local routes: %w", err)
			}
			isLocal = func(a netip.Addr) bool { return local[a] }
		}
		if waiting = slices.DeleteFunc(waiting, isLocal); len(waiting) > 0 && time.Now().After(deadline) {
			return fmt.Errorf("address %s, and %d others, have no local route after %v", waiting[0], len(waiting)-1, localTimeout)
		}
	}
	return nil
}

// leadsHere reports whether the route to an address is local. No route is none.
func leadsHere(h *netlink.Handle, a netip.Addr) bool {
	routes, err := h.RouteGet(a.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// localAddresses are the IPv6 addresses of the table local.
func localAddresses(h *netlink.Handle) (map[netip.Addr]bool, error) {
	routes, err := List(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // what is missing is looked for again
		return nil, err
	}
	local := map[netip.Addr]bool{}
	for _, r := range routes {
		if r.Dst == nil || r.Type != unix.RTN_LOCAL {
			continue
		}
		if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			local[a] = true
		}
	}
	return local, nil
}

// AnswersPass reports whether what an endpoint of this machine sends to a client passes this
// machine. Those behind one interface, a bridge say, may reach each other without it.
func AnswersPass(client, endpoint netip.Addr) bool {
	towardsClient, err := netlink.RouteGet(client.AsSlice())
	if err != nil || len(towardsClient) == 0 {
		return false
	}
	towardsEndpoint, err := netlink.RouteGet(endpoint.AsSlice())
	return err == nil && len(towardsEndpoint) > 0 && towardsClient[0].LinkIndex != towardsEndpoint[0].LinkIndex
}
