package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// socketNode is a node whose cgroup this process is in, with three pods that
// answer.
type socketNode struct {
	t     *testing.T
	node  *topology.Node
	pods  map[string]*topology.Host
	plane *Plane
}

func newSocketNode(t *testing.T) *socketNode {
	t.Helper()
	lab, err := topology.New("sockets-"+strconv.Itoa(os.Getpid()), topology.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, lab.Remove()) })
	n := &socketNode{t: t, pods: map[string]*topology.Host{}}
	n.node, err = lab.AddNode("node")
	check(t, err)
	for _, name := range []string{"a", "b", "c"} {
		pod, err := n.node.AddPod(name)
		check(t, err)
		n.pods[name] = pod.Host
		server, err := echo.Start(name, []echo.Port{{Number: 8080, Protocol: "TCP"}, {Number: 8080, Protocol: "UDP"}}, pod.Do)
		check(t, err)
		t.Cleanup(func() { check(t, server.Close()) })
	}
	cgroup, err := n.node.Cgroup()
	check(t, err)
	check(t, n.node.Do(func() (err error) {
		n.plane, err = New(kernel.Options{Cgroup: cgroup, StateDir: t.TempDir()})
		return err
	}))
	t.Cleanup(func() { check(t, n.node.Do(func() error { return n.plane.Remove(context.Background()) })) })
	enter(t, cgroup)
	return n
}

// serve leads the Service, in both families and protocols, to these pods.
func (n *socketNode) serve(names ...string) {
	n.t.Helper()
	n.apply(n.tableOf(names...), false)
}

func (n *socketNode) apply(want *model.Table, verify bool) {
	n.t.Helper()
	check(n.t, n.node.Do(func() error { return n.plane.Apply(context.Background(), want, verify) }))
}

func (n *socketNode) tableOf(names ...string) *model.Table {
	e := model.NewTable().Edit()
	for i, vip := range vips {
		for _, proto := range []model.Protocol{model.TCP, model.UDP} {
			p := &model.Pool{ID: model.PoolID{Name: "default/web:" + proto.String(), Proto: proto, IPv6: i == 1}}
			for _, name := range names {
				addr := n.pods[name].IPv4()
				if i == 1 {
					addr = n.pods[name].IPv6()
				}
				p.Backends = append(p.Backends, model.Backend{Addr: addr, Port: 8080, Weight: 1, Local: true})
			}
			e.SetPool(p)
			route := model.Route{Pool: p.ID}
			e.SetFrontend(&model.Frontend{Key: model.Key{Addr: vip, Port: 80, Proto: proto}, Name: p.ID.Name, Routes: [model.NumOrigins]model.Route{route, route, route}})
		}
	}
	return e.Table()
}

// TestPeers: sockets see the frontend as their peer, and as the sender of
// datagrams, and are connected to the backend.
func TestPeers(t *testing.T) {
	n := newSocketNode(t)
	n.serve("b")
	for _, vip := range vips {
		to := netip.AddrPortFrom(vip, 80)
		for _, network := range []string{"tcp", "udp"} {
			check(t, n.pods["a"].Do(func() error {
				conn, err := net.Dial(network, to.String())
				if err != nil {
					return err
				}
				defer conn.Close()
				if conn.RemoteAddr().String() != to.String() {
					t.Errorf("%s: the peer of %s is %s", network, to, conn.RemoteAddr())
				}
				return nil
			}))
		}
		n.datagrams(to, "b")
	}
	// An IPv6 socket may speak to an IPv4 address.
	n.datagrams(netip.AddrPortFrom(netip.AddrFrom16(vips[0].As16()), 80), "b")
	n.serve("c")
	n.datagrams(netip.AddrPortFrom(vips[0], 80), "c")
}

// datagrams sends several from one socket that isn't connected, and reads the
// answers.
func (n *socketNode) datagrams(to netip.AddrPort, want string) {
	n.t.Helper()
	check(n.t, n.pods["a"].Do(func() error {
		network := "udp" // of both families
		if to.Addr().Is4() {
			network = "udp4"
		}
		conn, err := net.ListenUDP(network, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for range 3 {
			if err := exchange(conn, to, want); err != nil {
				return err
			}
		}
		return nil
	}))
}

func exchange(conn *net.UDPConn, to netip.AddrPort, want string) error {
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.WriteToUDPAddrPort([]byte("who?\n"), to); err != nil {
		return err
	}
	buf := make([]byte, 256)
	size, sender, err := conn.ReadFromUDPAddrPort(buf)
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", to, err)
	}
	if sender.Addr().Unmap() != to.Addr().Unmap() || sender.Port() != to.Port() || !strings.HasPrefix(string(buf[:size]), want+" ") {
		return fmt.Errorf("%q from %s, expected %s of %s", buf[:size], sender, want, to)
	}
	return nil
}

// TestUnconnectedMovesOn: a socket that isn't connected keeps its backend while
// the pool has it.
func TestUnconnectedMovesOn(t *testing.T) {
	n := newSocketNode(t)
	n.serve("b")
	to := netip.AddrPortFrom(vips[0], 80)
	check(t, n.pods["a"].Do(func() error {
		conn, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, step := range []struct {
			pods []string
			want string
		}{{[]string{"b"}, "b"}, {[]string{"b", "c"}, "b"}, {[]string{"c"}, "c"}, {[]string{"b", "c"}, "c"}} {
			n.serve(step.pods...)
			for range 4 {
				if err := exchange(conn, to, step.want); err != nil {
					return fmt.Errorf("served by %v: %w", step.pods, err)
				}
			}
		}
		return nil
	}))
}

// TestMissed: sockets are looked for when their backend is gone, by what the programs
// count; what escapes that is made up for by the next comparison.
func TestMissed(t *testing.T) {
	n := newSocketNode(t)
	n.serve("b")
	var conn net.Conn
	check(t, n.pods["a"].Do(func() (err error) {
		conn, err = net.Dial("udp4", netip.AddrPortFrom(vips[0], 80).String())
		return err
	}))
	defer conn.Close()
	served := func(by string) {
		t.Helper()
		if got, err := say(conn, 30*time.Second); err != nil || !strings.HasPrefix(got, by+" ") {
			t.Errorf("%q, %v; expected %s", got, err, by)
		}
	}
	held := func(by string) (id uint32, count uint64) {
		t.Helper()
		pool := n.plane.state.pools[model.PoolID{Name: "default/web:" + model.UDP.String(), Proto: model.UDP}]
		id = pool.member(netip.AddrPortFrom(n.pods[by].IPv4(), 8080))
		var state struct{ Active, Sockets uint64 }
		check(t, n.plane.store.states.read(id, &state))
		return id, state.Sockets
	}
	served("b")
	n.serve("c")
	served("c")
	id, count := held("c")
	if count != 1 {
		t.Errorf("%d sockets of the backend, expected 1", count)
	}
	check(t, n.plane.store.states.clear(given{id: id, again: true}))
	n.serve("b")
	served("c")
	n.apply(n.tableOf("b"), true)
	served("b")
	check(t, conn.Close())
	if _, count := held("b"); count != 0 {
		t.Errorf("%d sockets of the backend, expected none", count)
	}
}

// TestDestroy: sockets that can't be had from their process are ended in the
// kernel.
func TestDestroy(t *testing.T) {
	n := newSocketNode(t)
	n.serve("b")
	for _, proto := range []model.Protocol{model.UDP, model.TCP} {
		check(t, n.pods["a"].Do(func() error {
			conn, err := net.Dial(proto.String(), netip.AddrPortFrom(vips[0], 80).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			raw, err := conn.(syscall.Conn).SyscallConn()
			if err != nil {
				return err
			}
			var cookie uint64
			var cookieErr error
			if err := errors.Join(raw.Control(func(fd uintptr) {
				cookie, cookieErr = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
			}), cookieErr); err != nil {
				return err
			}
			left := map[uint64]held{cookie: {front: model.Key{Proto: proto}}}
			if err := destroy(left); err != nil {
				return err
			}
			if len(left) > 0 {
				t.Errorf("%s: not found", proto)
			}
			if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				return err
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
				t.Errorf("%s: the socket says %v", proto, err)
			}
			return nil
		}))
	}
}

// enter puts this process into a cgroup until the test ends.
func enter(t testing.TB, dir string) {
	t.Helper()
	root, err := cgroup.Root()
	check(t, err)
	join(t, dir)
	t.Cleanup(func() { join(t, root) })
}

// join puts this process into a cgroup.
func join(t testing.TB, dir string) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0))
}
