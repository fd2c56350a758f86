//go:build !race

package l2

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// serve has a node answer each line with its name, at the addresses that it may announce.
// Its kernel doesn't answer ARP for these, as with any data plane.
func (l *lan) serve(name string) {
	l.Helper()
	host := l.hosts[name]
	l.must(host.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		errs := []error{netlink.LinkSetUp(lo), os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0)}
		for _, a := range []netip.Addr{vip, vip6} {
			errs = append(errs, netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: syscall.IFA_F_NODAD}))
		}
		return errors.Join(errs...)
	}))
	for _, a := range []netip.Addr{vip, vip6} {
		var listener net.Listener
		l.must(host.Do(func() (err error) {
			listener, err = net.Listen("tcp", net.JoinHostPort(a.String(), "80"))
			return err
		}))
		l.Cleanup(func() { _ = listener.Close() })
		go answerAs(name, listener)
	}
}

// answerAs answers each line of each connection with a name.
func answerAs(name string, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if _, err := fmt.Fprintln(conn, name); err != nil {
					return
				}
			}
		}()
	}
}

// dial connects from the client.
func (l *lan) dial(a netip.Addr) net.Conn {
	l.Helper()
	var conn net.Conn
	l.must(l.hosts["client"].Do(func() (err error) {
		ctx, cancel := context.WithTimeout(l.Context(), 20*time.Second)
		defer cancel()
		var d net.Dialer
		conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), "80"))
		return err
	}))
	l.Cleanup(func() { _ = conn.Close() })
	return conn
}

// who asks which node answers over a connection.
func who(conn net.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "who?\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return line[:max(0, len(line)-1)], err
}

// TestConnectionsStay: when an address is given up on purpose, connections go on by way of
// the new owner with the former one, and new ones are the new owner's; when the former
// one has no connections left, nothing is led to it any more.
func TestConnectionsStay(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.serve("a")
	l.serve("b")
	l.firstAlone()
	expect := func(what string, conn net.Conn, want string) {
		t.Helper()
		for range 3 {
			if got, err := who(conn); got != want || err != nil {
				t.Fatalf("over %s to %s, %q answers, %v; expected %q", what, conn.RemoteAddr(), got, err, want)
			}
		}
	}
	var old []net.Conn
	for _, a := range []netip.Addr{vip, vip6} {
		old = append(old, l.dial(a))
		expect("a connection", old[len(old)-1], "a")
	}
	l.must(l.nodes["a"].Process.Signal(resigns))
	l.expectOwners("b")
	for i, a := range []netip.Addr{vip, vip6} {
		if got := l.resolve(a); got != "b" {
			t.Fatalf("%q answers for %s", got, a)
		}
		expect("the old connection", old[i], "a")
		expect("a new connection", l.dial(a), "b")
	}
	l.must(l.nodes["a"].Process.Signal(isEmpty))
	for _, conn := range old {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if _, err := who(conn); errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the old connection to %s is still led to a", conn.RemoteAddr())
			}
		}
	}
}
