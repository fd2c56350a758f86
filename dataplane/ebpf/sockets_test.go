package ebpf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
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
	t.Cleanup(func() {
		check(t, n.node.Do(func() error { return n.plane.Remove(context.Background(), kernel.EndConnections) }))
	})
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
	check(n.t, n.node.Do(func() error {
		result, err := n.plane.Apply(context.Background(), want, kernel.VerifyIf(verify))
		return errors.Join(err, result.Err())
	}))
}

func (n *socketNode) tableOf(names ...string) *model.Table {
	e := model.NewTable().Edit()
	for i, vip := range socketVIPs {
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
	for _, vip := range socketVIPs {
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
	n.datagrams(netip.AddrPortFrom(netip.AddrFrom16(socketVIPs[0].As16()), 80), "b")
	n.serve("c")
	n.datagrams(netip.AddrPortFrom(socketVIPs[0], 80), "c")
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
	to := netip.AddrPortFrom(socketVIPs[0], 80)
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
		conn, err = net.Dial("udp4", netip.AddrPortFrom(socketVIPs[0], 80).String())
		return err
	}))
	defer conn.Close()
	served := func(by string) {
		t.Helper()
		if got, err := hear(conn, 30*time.Second); err != nil || !strings.HasPrefix(got, by+" ") {
			t.Errorf("%q, %v; expected %s", got, err, by)
		}
	}
	held := func(by string) (id uint32, count uint64) {
		t.Helper()
		pool := model.PoolID{Name: "default/web:" + model.UDP.String(), Proto: model.UDP}
		id = n.plane.state.BackendID(pool, netip.AddrPortFrom(n.pods[by].IPv4(), 8080))
		var state struct{ Active, Sockets uint64 }
		check(t, n.plane.store.States.Read(id, &state))
		return id, state.Sockets
	}
	served("b")
	n.serve("c")
	served("c")
	id, count := held("c")
	if count != 1 {
		t.Errorf("%d sockets of the backend, expected 1", count)
	}
	check(t, n.plane.store.States.Clear(program.Allocated{ID: id, Reused: true}))
	n.serve("b")
	served("c")
	n.apply(n.tableOf("b"), true)
	served("b")
	check(t, conn.Close())
	if _, count := held("b"); count != 0 {
		t.Errorf("%d sockets of the backend, expected none", count)
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

var socketVIPs = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")}

// hear sends a line and reads the answer, which begins with the server's name.
func hear(c net.Conn, wait time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}
