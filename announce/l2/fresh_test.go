//go:build !race

package l2

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
)

// hearARP calls with what a host hears of ARP about the IPv4 address, until the test ends.
func (l *lan) hearARP(host string, heard func(conn *packet.Conn, mac net.HardwareAddr, m arpMessage)) {
	l.Helper()
	var conn *packet.Conn
	var eth *net.Interface
	l.must(l.hosts[host].Do(func() (err error) {
		if eth, err = net.InterfaceByName("eth0"); err == nil {
			conn, err = packet.Listen(eth, packet.Raw, etherARP, nil)
		}
		return err
	}))
	l.Cleanup(func() { _ = conn.Close() })
	go func() {
		for buffer := make([]byte, 2048); ; {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if m, ok := parseARP(slices.Clone(buffer[:n])); ok && m.Target == vip && !slices.Equal(m.SenderMAC, eth.HardwareAddr) {
				heard(conn, eth.HardwareAddr, m)
			}
		}
	}()
}

// announceAt runs an announcer on a host, in this process.
func (l *lan) announceAt(host string, addresses ...netip.Addr) *Announcer {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := New(cluster(host), func() {}, slog.New(slog.NewTextHandler(l.Output(), nil)))
	a.Set(wantAll(addresses...), served)
	done := make(chan error, 1)
	go func() { done <- l.hosts[host].Do(func() error { return a.Run(ctx, func() bool { return false }) }) }()
	l.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			l.Error(err)
		}
	})
	return a
}

func wantAll(addresses ...netip.Addr) map[netip.Addr]Placement {
	wanted := map[netip.Addr]Placement{}
	for _, a := range addresses {
		wanted[a] = Placement{}
	}
	return wanted
}

// said is what the client hears of the IPv4 address: that it is asked for, or told.
func (l *lan) said() <-chan string {
	said := make(chan string, 100)
	l.hearARP("client", func(_ *packet.Conn, _ net.HardwareAddr, m arpMessage) {
		if m.Sender.IsUnspecified() {
			said <- "asks"
		} else if m.Operation == arpRequest {
			said <- "tells"
		}
	})
	return said
}

// TestAskedAhead: the link is asked while the data plane takes in an address, so that it is
// told at once when it may be.
func TestAskedAhead(t *testing.T) {
	l := newLAN(t)
	said := l.said()
	a := l.announceAt("a", vip6)
	await := func() string {
		select {
		case what := <-said:
			return what
		case <-time.After(100 * time.Millisecond):
			return ""
		}
	}
	l.await(func() (bool, string) {
		a.Expect(wantAll(vip))
		what := await()
		return what == "asks", what
	})
	a.Set(wantAll(vip, vip6), served)
	if what := <-said; what != "tells" {
		t.Errorf("it %s", what)
	}
}

// TestStandBy: a link is listened on before there is something to announce, so that the first
// address is told as soon as nobody has answered; and it is closed when there may be none.
func TestStandBy(t *testing.T) {
	l := newLAN(t)
	said := l.said()
	a := l.announceAt("a")
	links := func(want int) {
		l.Helper()
		l.await(func() (bool, string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, link := range a.links {
				link.mu.Lock()
				ready := link.core.IsReady(time.Now())
				link.mu.Unlock()
				if !ready {
					return false, "the link is listened on too long"
				}
			}
			return len(a.links) == want, fmt.Sprintf("%d links are open, want %d", len(a.links), want)
		})
	}
	links(0)
	a.StandBy(map[netip.Addr]Placement{vip.Prev(): {}})
	a.Set(nil, nil)
	links(1)
	if len(a.Status()) > 0 {
		t.Errorf("nothing is announced, but %+v", a.Status())
	}
	a.Set(wantAll(vip), served)
	a.mu.Lock()
	for _, link := range a.links {
		if !link.core.IsReady(time.Now()) {
			t.Error("the link was opened anew")
		}
	}
	a.mu.Unlock()
	for _, want := range []string{"asks", "tells"} {
		if what := <-said; what != want {
			t.Errorf("it %s, and should have been what %s", what, want)
		}
	}
	a.StandBy(nil)
	a.Set(nil, nil)
	links(0)
}

// TestTakenAhead: another machine answers before the address is claimed.
func TestTakenAhead(t *testing.T) {
	l := newLAN(t)
	l.must(l.hosts["b"].Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(eth, &netlink.Addr{IPNet: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(24, 32)}})
	}))
	a := l.announceAt("a", vip6)
	conflicts := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		n := 0
		for _, link := range a.links {
			link.mu.Lock()
			n += link.core.Conflicts()
			link.mu.Unlock()
		}
		return n
	}
	l.await(func() (bool, string) {
		a.Expect(wantAll(vip))
		return conflicts() == 1, "nobody has answered"
	})
	a.Set(wantAll(vip, vip6), served)
	l.await(func() (bool, string) {
		for _, s := range a.Status() {
			if s.Address == vip {
				return l.macs[s.Conflict] == "b" && s.Since.IsZero(), fmt.Sprintf("%+v", s)
			}
		}
		return false, "it is not known"
	})
}

// TestFreshAddress: who announces an address that nobody had asks first, tells all as soon as
// nobody has answered, and goes on to ask.
func TestFreshAddress(t *testing.T) {
	l := newLAN(t)
	said := l.said()
	l.announceAt("a", vip)
	var got []string
	for range 4 {
		select {
		case what := <-said:
			got = append(got, what)
		case <-time.After(20 * time.Second):
			t.Fatalf("only %q", got)
		}
	}
	if want := "[asks tells asks asks]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestSleepyDuplicate: another machine has the address and doesn't answer the first question,
// because it sleeps. It is found by the next one, and the address is given up.
func TestSleepyDuplicate(t *testing.T) {
	l := newLAN(t)
	l.must(l.hosts["b"].Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetARPOff(eth) // only what this test answers
	}))
	l.must(l.hosts["b"].Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("8"), 0) }))
	questions := 0
	l.hearARP("b", func(conn *packet.Conn, mac net.HardwareAddr, m arpMessage) {
		if !m.Sender.IsUnspecified() {
			return
		}
		if questions++; questions > 1 {
			answer := arpMessage{Operation: arpReply, SenderMAC: mac, Sender: vip, TargetMAC: m.SenderMAC, Target: netip.IPv4Unspecified()}
			_, _ = conn.WriteTo(answer.frame(m.SenderMAC), &packet.Addr{HardwareAddr: m.SenderMAC}) // the test may be over
		}
	})
	a := l.announceAt("a", vip)
	l.await(func() (bool, string) {
		status := a.Status()
		return len(status) == 1 && l.macs[status[0].Conflict] == "b" && status[0].Since.IsZero(), fmt.Sprintf("%+v", status)
	})
}

// TestExpectedTwice: what is expected next doesn't make what was expected before forgotten.
func TestExpectedTwice(t *testing.T) {
	a := New(cluster("a"), func() {}, slog.New(slog.DiscardHandler))
	a.Expect(wantAll(vip))
	a.Expect(wantAll(vip6))
	if len(a.coming) != 2 {
		t.Errorf("to be asked for: %v", a.coming)
	}
}
