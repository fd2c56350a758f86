package planes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// manyClients is how many addresses the step alike gives the host.
const manyClients = 8

// alike has many clients, which are one host with so many addresses, ask by two
// ways, and expects the same backend to answer both times.
func (r *Run) alike(args []string) error {
	first, err := parseProbe(args[:3])
	if err != nil {
		return err
	}
	second, err := parseProbe([]string{args[0], args[1], args[3]})
	if err != nil || r.topo == nil {
		return err
	}
	found := map[string]bool{}
	for n := range manyClients {
		from, err := r.topo.extraAddress(first, n)
		if err != nil {
			return err
		}
		first.FromAddr, second.FromAddr = from, from
		a, b := r.topo.ask(first, waitTimeout), r.topo.ask(second, waitTimeout)
		if a.Outcome != Forwarded || b.Outcome != Forwarded || a.Backend != b.Backend {
			return fmt.Errorf("client %s: %s at %s, and %s at %s", from, a, first.To, b, second.To)
		}
		found[a.Backend] = true
	}
	if len(found) < 2 {
		return fmt.Errorf("%d clients reached only %v", manyClients, found)
	}
	return nil
}

// extraAddress gives the host another address beside its own.
func (s *Topology) extraAddress(p Probe, n int) (netip.Addr, error) {
	addr := p.From.addr(p.To.Addr())
	for range n + 1 {
		addr = addr.Next()
	}
	h, err := s.hosts[p.From.Name].NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return addr, err
	}
	defer h.Close()
	link, err := h.LinkByName("eth0")
	if err != nil {
		return addr, fmt.Errorf("find eth0 of %s: %w", p.From.Name, err)
	}
	ip := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
	err = h.AddrAdd(link, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return addr, fmt.Errorf("add address %s to %s: %w", addr, p.From.Name, err)
	}
	return addr, nil
}
