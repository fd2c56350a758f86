//go:build !race

package l2

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestKernelAnswersForItsOwnOnly: where routes make an address every node's own, as in
// userspace mode, one node answers for it, also beside one that may announce nothing.
func TestKernelAnswersForItsOwnOnly(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	for _, name := range []string{"a", "b"} {
		l.must(l.hosts[name].Do(func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			own := &netlink.Route{
				LinkIndex: lo.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST,
				Dst: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(32, 32)},
			}
			return errors.Join(netlink.LinkSetUp(lo), netlink.RouteAdd(own))
		}))
	}
	l.await(func() (bool, string) {
		got := l.askARP()
		return len(got) == 2, fmt.Sprintf("%v answer without agents: nothing is tried", got)
	})
	l.start("a")
	l.drained = "yes"
	l.start("b")
	l.expectOwners("a")
}
