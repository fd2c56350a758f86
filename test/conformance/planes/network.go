package planes

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// readNetwork lists the node's links, addresses, rules, routes, queueing
// disciplines and ipsets, without what varies with traffic.
func (s *Topology) readNetwork(shot snapshot) error {
	h, err := s.node.NS.Netlink(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	for name, list := range map[string]func(*netlink.Handle) ([]string, error){
		"links": links, "addresses": addresses, "rules": rules, "routes": routes, "qdiscs": qdiscs, "ipsets": ipsets,
	} {
		lines, err := list(h)
		if err != nil {
			return fmt.Errorf("list %s: %w", name, err)
		}
		slices.Sort(lines)
		shot[name] = strings.Join(lines, "\n")
	}
	return nil
}

func links(h *netlink.Handle) ([]string, error) {
	list, err := kernel.List(h.LinkList)
	var lines []string
	for _, l := range list {
		a := l.Attrs()
		lines = append(lines, fmt.Sprintf("%s %s %s mtu %d flags %s master %d alias %q", a.Name, l.Type(), a.HardwareAddr, a.MTU, a.Flags&net.FlagUp, a.MasterIndex, a.Alias))
	}
	return lines, err
}

func addresses(h *netlink.Handle) ([]string, error) {
	list, err := kernel.List(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	var lines []string
	for _, a := range list {
		if a.IP.IsLinkLocalUnicast() {
			continue // come when the link is up, which may be late
		}
		lines = append(lines, fmt.Sprintf("link %d: %s scope %d flags %#x", a.LinkIndex, a.IPNet, a.Scope, a.Flags))
	}
	return lines, err
}

func rules(h *netlink.Handle) ([]string, error) {
	list, err := kernel.List(func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_ALL) })
	var lines []string
	for _, r := range list {
		lines = append(lines, fmt.Sprintf("family %d: %s", r.Family, r))
	}
	return lines, err
}

func routes(h *netlink.Handle) ([]string, error) {
	list, err := kernel.List(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	var lines []string
	for _, r := range list {
		if r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()) {
			continue // come with the link's addresses
		}
		if r.Table == unix.RT_TABLE_LOCAL && r.Protocol == unix.RTPROT_KERNEL {
			// Come with addresses, which are listed themselves; for IPv6 a
			// while after them (addrconf_dad_work), which may be in the middle
			// of a case.
			continue
		}
		lines = append(lines, r.String())
	}
	return lines, err
}

func qdiscs(h *netlink.Handle) ([]string, error) {
	list, err := kernel.List(func() ([]netlink.Qdisc, error) { return h.QdiscList(nil) })
	var lines []string
	for _, q := range list {
		lines = append(lines, fmt.Sprintf("%s %s", q.Type(), q.Attrs()))
	}
	return lines, err
}

func ipsets(h *netlink.Handle) ([]string, error) {
	list, err := h.IpsetListAll()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // a kernel without ipsets
	}
	var lines []string
	for _, set := range list {
		lines = append(lines, fmt.Sprintf("%s %s, %d entries", set.SetName, set.TypeName, len(set.Entries)))
	}
	return lines, err
}
