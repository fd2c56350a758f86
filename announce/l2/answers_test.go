//go:build !race

package l2

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/announce/l2/responder"

	"github.com/fairway-net/fairway/announce/core"
)

// resolve has the client forget an address and look for it again, and returns the
// node that answered first; "" if none did.
func (l *lan) resolve(a netip.Addr) string {
	l.Helper()
	l.must(l.hosts["client"].Do(func() error {
		list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, n := range list {
			if n.IP.Equal(a.AsSlice()) {
				err = errors.Join(err, netlink.NeighDel(&n))
			}
		}
		return err
	}))
	l.touch(a)
	for range wait.Tries(20 * time.Second) {
		n := l.neighbor(a)
		if n.State == netlink.NUD_FAILED {
			return ""
		}
		if len(n.HardwareAddr) > 0 {
			return l.macs[n.HardwareAddr.String()]
		}
	}
	return ""
}

// stays fails if another node than one is the first to answer in a time, or none
// answers.
func (l *lan) stays(node, what string, d time.Duration) {
	l.Helper()
	if other := l.otherFor(node, d); other != "" {
		l.Fatalf("%s: %s, want %s", what, other, node)
	}
}

// settles waits until a node alone has been the first to answer for a time, whoever did before.
func (l *lan) settles(node, what string, d time.Duration) {
	l.Helper()
	wait.Until(l, 20*time.Second, what, func() bool { return l.otherFor(node, d) == "" })
}

// otherFor says who else was the first to answer within a time; "" if one node always was.
func (l *lan) otherFor(node string, d time.Duration) string {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, a := range []netip.Addr{vip, vip6} {
			if got := l.resolve(a); got != node {
				return fmt.Sprintf("%q answers for %s", got, a)
			}
		}
	}
	return ""
}

// firstAlone starts a, which gets both addresses, and then b.
func (l *lan) firstAlone() {
	l.Helper()
	l.start("a")
	l.expectOwners("a")
	l.start("b")
	l.stays("a", "another node comes", 5*core.Interval)
}

// TestKilled: nothing moves, and every request is answered, while a node's agent is
// killed, away, asleep or restarted.
func TestKilled(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.firstAlone()
	l.end("a", syscall.SIGKILL)
	l.stays("a", "its agent is killed", 3*core.DeadAfter)
	l.expectOwners("a")
	l.start("a")
	l.stays("a", "its agent is back", 2*core.DeadAfter)
	l.end("a", restarts)
	l.stays("a", "its agent restarts", 3*core.DeadAfter)
	l.start("a")
	l.stays("a", "its agent has restarted", 2*core.DeadAfter)
	l.must(l.nodes["a"].Process.Signal(syscall.SIGSTOP))
	l.stays("a", "its agent sleeps", 3*core.DeadAfter)
	l.must(l.nodes["a"].Process.Signal(syscall.SIGCONT))
	l.stays("a", "its agent woke up", 2*core.DeadAfter)

	// The other one takes over when the machine is gone, and never both answer.
	l.cutPower("a")
	l.expectOwners("b")
	l.setLink("a", true)
	l.expectOwners("b")
	l.stays("b", "the former owner is back without an agent", core.DeadAfter)
}

// TestAwayForLong: others take over when an agent has been away for its time. A node
// without others goes on.
func TestAwayForLong(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.alone = "2s"
	l.start("a")
	l.expectOwners("a")
	l.end("a", syscall.SIGKILL)
	l.stays("a", "nobody else is there", 3*time.Second)
	l.start("b")
	l.expectOwners("b")
	l.start("a")
	l.stays("b", "the former owner's agent is back", 2*core.DeadAfter)
	l.end("b", syscall.SIGKILL)
	l.expectOwners("a")
}

// TestStrangerTakesOver: while the agent is away, a machine that says that it has an
// address gets it.
func TestStrangerTakesOver(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.expectOwners("a")
	l.end("a", syscall.SIGKILL)
	time.Sleep(2 * core.DeadAfter) // the kernel answers for longer than a node may be silent
	mac := l.macOf("b")
	l.must(l.hosts["b"].Do(func() error {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		arp, err := packet.Listen(eth, packet.Raw, etherARP, nil)
		if err != nil {
			return err
		}
		for _, frame := range append(gratuitousARP(vip, mac), unsolicitedNA(vip6, mac)) {
			if _, err := arp.WriteTo(frame, &packet.Addr{HardwareAddr: broadcast}); err != nil {
				return err
			}
		}
		return arp.Close()
	}))
	for _, address := range []netip.Addr{vip, vip6} {
		l.await(func() (bool, string) {
			got := l.resolve(address)
			return got == "", fmt.Sprintf("%s still answers for %s, which b has", got, address)
		})
	}
}

func (l *lan) macOf(node string) net.HardwareAddr {
	l.Helper()
	for mac, name := range l.macs {
		if name == node {
			hardware, err := net.ParseMAC(mac)
			l.must(err)
			return hardware
		}
	}
	l.Fatalf("no node %s", node)
	return nil
}

// TestNothingIsLeft: an agent that hands over takes its program away.
func TestNothingIsLeft(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.expectOwners("a")
	if n := l.filters("a"); n != 1 {
		t.Fatalf("%d programs at the interface, want 1", n)
	}
	l.end("a", handsOver)
	if n := l.filters("a"); n != 0 {
		t.Errorf("%d programs are left at the interface", n)
	}
}

// filters counts the programs that answer at a node's interfaces.
func (l *lan) filters(name string) int {
	l.Helper()
	var found []string
	l.must(l.hosts[name].Do(func() (err error) {
		found, err = responder.Leftovers()
		return err
	}))
	return len(found)
}
