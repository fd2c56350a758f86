package ebpf

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/model"
)

// TestDeadlines: connections whose backend is gone end when their deadline passes, also
// where the agent has started again; not if the backend has come back.
func TestDeadlines(t *testing.T) {
	n := newSocketNode(t)
	within := func(deadline time.Duration, names ...string) {
		t.Helper()
		e := n.tableOf(names...).Edit()
		for p := range n.tableOf(names...).Pools() {
			next := *p
			next.Orphans, next.OrphanDeadline = model.OrphansDeadline, deadline
			e.SetPool(&next)
		}
		n.apply(e.Table(), false)
	}
	dial := func() (conn net.Conn) {
		t.Helper()
		check(t, n.pods["a"].Do(func() (err error) {
			conn, err = net.Dial("tcp4", netip.AddrPortFrom(socketVIPs[0], 80).String())
			return err
		}))
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	within(time.Hour, "b")
	back := dial()
	within(time.Second, "c") // b is gone
	within(time.Second, "b", "c")
	time.Sleep(2 * time.Second) // the deadline passes
	if got, err := hear(back, 30*time.Second); err != nil || !strings.HasPrefix(got, "b ") {
		t.Errorf("an endpoint that has come back: %q, %v", got, err)
	}

	within(3*time.Second, "c")
	check(t, n.plane.Close())
	check(t, n.node.Do(func() (err error) {
		n.plane, err = New(n.plane.options)
		return err
	}))
	within(time.Hour, "c") // which sets no other deadline for what has one
	var err error
	for range wait.Tries(60 * time.Second) {
		if _, err = hear(back, 30*time.Second); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNABORTED) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after the deadline, in another process: %v, expected the connection to end", err)
	}
}

// TestAskedLast: answers to a socket that isn't connected come from the port that it asked
// last, or from the endpoint itself where it asked that.
func TestAskedLast(t *testing.T) {
	n := newSocketNode(t)
	table := n.tableOf("b")
	e := table.Edit()
	for _, vip := range socketVIPs {
		f := *table.Frontend(model.Key{Addr: vip, Port: 80, Proto: model.UDP})
		f.Port = 81
		e.SetFrontend(&f)
	}
	n.apply(e.Table(), false)
	for i, vip := range socketVIPs {
		endpoint := n.pods["b"].IPv4()
		if i == 1 {
			endpoint = n.pods["b"].IPv6()
		}
		check(t, n.pods["a"].Do(func() error {
			conn, err := net.ListenUDP("udp", nil)
			if err != nil {
				return err
			}
			defer conn.Close()
			for _, to := range []netip.AddrPort{
				netip.AddrPortFrom(vip, 80), netip.AddrPortFrom(vip, 81), netip.AddrPortFrom(vip, 80),
				netip.AddrPortFrom(endpoint, 8080), netip.AddrPortFrom(vip, 81), netip.AddrPortFrom(endpoint, 8080),
			} {
				if err := exchange(conn, to, "b"); err != nil {
					t.Error(err)
				}
			}
			return nil
		}))
	}
}
