package steering

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestProgramComesAndGoes: the program is there from the question of another node until no
// connection of before is left. At a node that has too many to tell them apart it leads nothing,
// and answers others that lead packets there.
func TestProgramComesAndGoes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, many := range []int{2, mostFlows + 1} {
		runtime.LockOSThread() // the thread ends with the test, and its namespace with it
		must(t, unix.Unshare(unix.CLONE_NEWNET))
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
		device, err := net.InterfaceByName("br0")
		must(t, err)
		has := many
		connections := func(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
			found := map[netip.Addr][]kernel.Connection{}
			for client := netip.MustParseAddr("10.0.0.1"); addresses[four] && len(found[four]) < has; client = client.Next() {
				found[four] = append(found[four], kernel.Connection{Client: netip.AddrPortFrom(client, 4000), Port: 80, Proto: model.TCP})
			}
			return found, nil
		}
		l, err := openUplink(NewInterfaces(), device, &link.Cluster{Node: "a", Keys: key, Incarnations: &link.Incarnations{}, Foreign: &link.Foreign{}}, connections, func() {}, slog.New(slog.DiscardHandler))
		must(t, err)
		expect := func(what string, there, holds bool) {
			t.Helper()
			left, err := Leftovers()
			must(t, err)
			if (len(left) > 0) != there {
				t.Errorf("%d connections, %s: the program is on %q", many, what, left)
			}
			if s := l.group.own[four]; (s != nil && s.holds) != holds {
				t.Errorf("%d connections, %s: %+v, want that it holds: %v", many, what, s, holds)
			}
		}
		now := time.Now()
		l.step(now)
		expect("nobody has asked", false, false)
		l.mu.Lock()
		asks := &message{Node: "b", Incarnation: 1, Sequence: 1, Ask: 1, Entries: []entry{{Address: four, Asks: true, Prepared: true, Holds: true}}}
		l.take(time.Now(), asks.frame(mac(9)), true)
		l.mu.Unlock()
		l.step(now)
		expect("asked", true, true)
		if got := len(l.program.Rings()[four].Nodes); got > 0 && many > mostFlows {
			t.Errorf("%d connections: packets are led to %d nodes", many, got)
		}
		has = 1
		l.step(now.Add(settles + 2*sayEvery))
		expect("one is left", true, true)
		has = 0
		l.step(now.Add(settles + 4*sayEvery))
		l.step(now.Add(settles + 5*sayEvery))
		expect("none is left", false, false)
		must(t, l.close(false))
	}
}
