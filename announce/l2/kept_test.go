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

	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/announce/core"
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
	expect := func(what string, conn net.Conn, want string) { l.expectAnswers(what, want, conn) }
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
		for late := range wait.Tries(20 * time.Second) {
			if _, err := who(conn); errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
				break
			}
			if late {
				t.Fatalf("the old connection to %s is still led to a", conn.RemoteAddr())
			}
		}
	}
}

// expectAnswers expects a node to answer over connections.
func (l *lan) expectAnswers(what, want string, conns ...net.Conn) {
	l.Helper()
	for _, conn := range conns {
		for range 3 {
			if got, err := who(conn); got != want || err != nil {
				l.Fatalf("over %s to %s, %q answers, %v; expected %q", what, conn.RemoteAddr(), got, err, want)
			}
		}
	}
}

// dialBoth connects to both addresses.
func (l *lan) dialBoth(want string) []net.Conn {
	l.Helper()
	conns := []net.Conn{l.dial(vip), l.dial(vip6)}
	l.expectAnswers("a new connection", want, conns...)
	return conns
}

// TestConnectionsStayAtEach: an address moves from a to b, back to a, and to b again. Each
// node goes on with the connections that began with it, also when its agent is killed.
func TestConnectionsStayAtEach(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.serve("a")
	l.serve("b")
	l.firstAlone()
	ofA := l.dialBoth("a")
	move := func(from, to string) {
		t.Helper()
		l.must(l.nodes[from].Process.Signal(resigns))
		l.expectOwners(to)
	}
	move("a", "b")
	ofB := l.dialBoth("b")
	check := func(when string) {
		t.Helper()
		l.expectAnswers("a connection of a, "+when, "a", ofA...)
		l.expectAnswers("a connection of b, "+when, "b", ofB...)
	}
	check("which b leads there")
	l.must(l.nodes["a"].Process.Signal(returns))
	move("b", "a")
	check("after a has it back")
	ofA = append(ofA, l.dialBoth("a")...)
	check("after new ones")

	l.end("a", syscall.SIGKILL) // the kernel answers, and leads on
	check("while a has no agent")
	l.start("a")
	l.expectOwners("a")
	ofA = append(ofA, l.dialBoth("a")...)
	check("after a has an agent again")

	l.end("b", syscall.SIGKILL)
	l.drained = "yes"
	l.start("b")
	time.Sleep(2 * core.LostAfter) // a would have forgotten b
	check("after b has an agent again")
	l.must(l.nodes["b"].Process.Signal(returns))
	move("a", "b")
	check("after b has it back")
}

// TestFormerNodeLost: what an earlier process led to a node isn't led there any more when that
// one loses power: clients are reset, and don't hang.
func TestFormerNodeLost(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.serve("a")
	l.serve("b")
	l.firstAlone()
	old := l.dialBoth("a")
	l.must(l.nodes["a"].Process.Signal(resigns))
	l.expectOwners("b")
	l.expectAnswers("the old connection", "a", old...)
	l.must(l.nodes["a"].Process.Signal(returns))
	l.cutPower("b")
	l.expectOwners("a")
	l.setLink("b", true)
	l.start("b") // its kernel leads connections to a yet
	l.settles("a", "the kernel of b yields", 5*core.Interval)
	l.cutPower("a")
	l.expectOwners("b")
	for _, conn := range old {
		l.must(conn.SetDeadline(time.Now().Add(core.LostAfter)))
		_, err := io.WriteString(conn, "who?\n")
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection of a node that has lost power isn't reset: %v", err)
		}
	}
}
