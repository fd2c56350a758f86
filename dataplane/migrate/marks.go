package migrate

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
)

// KeeperTable is the table of nf_tables by which a plane without netfilter has the kernel
// go on translating connections that netfilter has (conntrack.KeepTranslating). The name
// is that of earlier releases.
const KeeperTable = "fairway-ebpf"

// TranslatesLate reports whether a plane is in force that sees new connections of this
// node's own processes only after netfilter has: one with a process of its own, or one
// without netfilter.
func TranslatesLate() (bool, error) {
	relayed, err := Relays()
	if relayed || err != nil {
		return relayed, err
	}
	return conntrack.KeepsTranslating(KeeperTable)
}

// Relays reports whether packets are led to a process of a plane's own.
func Relays() (bool, error) {
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: kernel.RouteProtocol}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := kernel.List(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			return true, nil // they change meanwhile; it is only a precaution
		}
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return false, fmt.Errorf("list local routes: %w", err)
		}
		if len(routes) > 0 {
			return true, nil
		}
	}
	return false, nil
}
