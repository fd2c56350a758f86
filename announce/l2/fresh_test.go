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
func (l *lan) announceAt(host string) *Announcer {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := New(host, []byte("key"), func() {}, slog.New(slog.NewTextHandler(l.Output(), nil)))
	a.Set(map[netip.Addr]Placement{vip: {}}, served)
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

// TestFreshAddress: who announces an address that nobody had asks first, tells all as soon as
// nobody has answered, and goes on to ask.
func TestFreshAddress(t *testing.T) {
	l := newLAN(t)
	said := make(chan string, 100)
	l.hearARP("client", func(_ *packet.Conn, _ net.HardwareAddr, m arpMessage) {
		if m.Sender.IsUnspecified() {
			said <- "asks"
		} else if m.Operation == arpRequest {
			said <- "tells"
		}
	})
	l.announceAt("a")
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
	a := l.announceAt("a")
	l.await(func() (bool, string) {
		status := a.Status()
		return len(status) == 1 && l.macs[status[0].Conflict] == "b" && status[0].Since.IsZero(), fmt.Sprintf("%+v", status)
	})
}
