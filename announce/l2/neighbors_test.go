//go:build !race

package l2

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/announce/core"
)

// TestGroups: switches that look after groups (MLD snooping) are told of the owner's,
// and no longer of the former owner's.
func TestGroups(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.expectOwners("a")
	l.awaitGroup("a", true)
	l.start("b")
	l.stays("a", "another node comes", 5*core.Interval)
	l.awaitGroup("b", false)
	l.end("a", handsOver)
	l.expectOwners("b")
	l.awaitGroup("b", true)
	l.awaitGroup("a", false)
}

// awaitGroup waits until the kernel of a node is in the group of the address, which it
// tells by MLD reports, or is not.
func (l *lan) awaitGroup(node string, in bool) {
	l.Helper()
	group := fmt.Sprintf("%x", solicitedNode(vip6).As16())
	l.await(func() (bool, string) {
		var list []byte
		l.must(l.hosts[node].Do(func() (err error) {
			list, err = os.ReadFile("/proc/thread-self/net/igmp6")
			return err
		}))
		return strings.Contains(string(list), group) == in, fmt.Sprintf("%s: in group %s? want %t:\n%s", node, group, in, list)
	})
}

// TestNeighborsLearn: the client's neighbor tables follow a take-over at once,
// by what is told unasked, and the kernel's unicast probes are answered.
func TestNeighborsLearn(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.awaitOwners()
	for _, address := range []netip.Addr{vip, vip6} {
		l.touch(address)
		l.awaitNeighbor(address, "a")
	}
	l.start("b")
	l.stays("a", "another node comes", 5*core.Interval)
	l.cutPower("a")
	for _, address := range []netip.Addr{vip, vip6} {
		l.awaitNeighbor(address, "b")
	}
	// A stale entry is probed by unicast (RFC 4861, 7.3.3).
	l.must(l.hosts["client"].Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for mac, name := range l.macs {
			hardware, err := net.ParseMAC(mac)
			if err != nil {
				return err
			}
			if name == "b" {
				err = netlink.NeighSet(&netlink.Neigh{LinkIndex: eth.Attrs().Index, IP: vip6.AsSlice(), HardwareAddr: hardware, State: netlink.NUD_PROBE})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	l.awaitState(vip6, netlink.NUD_REACHABLE)
}

// touch has the client send something to an address.
func (l *lan) touch(a netip.Addr) {
	l.Helper()
	l.must(l.hosts["client"].Do(func() error {
		c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	}))
}

func (l *lan) neighbor(a netip.Addr) (found netlink.Neigh) {
	l.Helper()
	l.must(l.hosts["client"].Do(func() error {
		list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, n := range list {
			if n.IP.Equal(a.AsSlice()) {
				found = n
			}
		}
		return err
	}))
	return found
}

func (l *lan) awaitNeighbor(a netip.Addr, node string) {
	l.Helper()
	l.await(func() (bool, string) {
		mac := l.neighbor(a).HardwareAddr.String()
		return l.macs[mac] == node, fmt.Sprintf("the client has %s at %s (%s), want %s", a, l.macs[mac], mac, node)
	})
}

func (l *lan) awaitState(a netip.Addr, state int) {
	l.Helper()
	l.await(func() (bool, string) {
		got := l.neighbor(a).State
		return got == state, fmt.Sprintf("the client's entry of %s is in state %#x, want %#x", a, got, state)
	})
}

// TestDuplicateAddress: an address that another machine has is not announced
// until that one gives it up.
func TestDuplicateAddress(t *testing.T) {
	l := newLAN(t)
	taken := &netlink.Addr{IPNet: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(24, 32)}}
	taken6 := &netlink.Addr{IPNet: &net.IPNet{IP: vip6.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: syscall.IFA_F_NODAD}
	l.must(l.hosts["b"].Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(eth, taken), netlink.AddrAdd(eth, taken6))
	}))
	ctx, cancel := context.WithCancel(t.Context())
	a := New(cluster("a"), func() {}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	a.Set(map[netip.Addr]Placement{vip: {}, vip6: {}}, served)
	done := make(chan error, 1)
	go func() { done <- l.hosts["a"].Do(func() error { return a.Run(ctx, func() bool { return false }) }) }()
	defer func() {
		cancel()
		l.must(<-done)
	}()
	l.await(func() (bool, string) {
		status := a.Status()
		conflicts := 0
		for _, s := range status {
			if !s.Since.IsZero() {
				t.Fatalf("%s is announced although another machine has it", s.Address)
			}
			if l.macs[s.Conflict] == "b" {
				conflicts++
			}
		}
		return conflicts == 2, fmt.Sprintf("status %+v, want a conflict with b for both", status)
	})
}
