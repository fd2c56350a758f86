package ebpf

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// expectXDP holds whether a program is in eth0's driver.
func expectXDP(t *testing.T, want bool, when string) {
	t.Helper()
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if xdp := eth0.Attrs().Xdp; (xdp != nil && xdp.Attached) != want {
		t.Errorf("%s: a program in the driver: %v", when, !want)
	}
}

// TestXDPKilled ends a process where it has put the program into a driver, or taken it out:
// the next one goes on, switches XDP off, or removes everything.
func TestXDPKilled(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		own := netip.MustParseAddr("172.30.0.11")
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: own.AsSlice(), Mask: net.CIDRMask(24, 32)}}); err != nil {
			t.Fatal(err)
		}
		e := webTable(3, 2).Edit()
		e.SetSettings(&model.Settings{NodeAddrs: []netip.Addr{own}})
		want := e.Table()
		without := options
		options.XDP = kernel.XDPAuto
		apply := func(p *Plane) func() error {
			return func() error { _, err := p.Apply(context.Background(), want, kernel.VerifyNothing); return err }
		}
		for _, step := range []string{"old programs forgotten", "driver done"} {
			p := newPlane(t, options)
			abandon(t, p, step, 0, apply(p))
			p = newPlane(t, options)
			if err := apply(p)(); err != nil {
				t.Fatal(err)
			}
			expectXDP(t, true, "after "+step)
			agrees(t, p, want)
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			p = newPlane(t, without)
			if err := apply(p)(); err != nil {
				t.Fatal(err)
			}
			expectXDP(t, false, "without XDP after "+step)
			removes(t, p, step)
		}
		p := newPlane(t, options)
		if err := apply(p)(); err != nil {
			t.Fatal(err)
		}
		abandon(t, p, "drivers left", 0, func() error { return p.Remove(context.Background(), kernel.EndConnections) })
		expectXDP(t, false, "after drivers were left")
		converges(t, options, want, "drivers left")
		expectXDP(t, false, "in the end")
	})
}
