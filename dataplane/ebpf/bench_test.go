package ebpf

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// Ways in which benchmarks reach a backend.
const (
	direct       = "direct"
	bySocket     = "socket"
	byInterfaces = "interfaces"
)

// benchNode is a node with two pods, of which one serves.
type benchNode struct {
	client *topology.Host
	server netip.AddrPort
	table  *model.Table
}

// newBenchNode makes a node with so many Services. If sockets says so, those
// that the benchmark makes are the node's.
func newBenchNode(b *testing.B, services int, sockets bool) *benchNode {
	b.Helper()
	lab, err := topology.New("bench-"+strconv.Itoa(os.Getpid()), topology.Options{})
	check(b, err)
	b.Cleanup(func() { check(b, lab.Remove()) })
	node, err := lab.AddNode("node")
	check(b, err)
	var pods []*topology.Host
	for _, name := range []string{"client", "server"} {
		pod, err := node.AddPod(name)
		check(b, err)
		pods = append(pods, pod.Host)
	}
	serve(b, pods[1])
	cgroup, err := node.Cgroup()
	check(b, err)
	n := &benchNode{client: pods[0], server: netip.AddrPortFrom(pods[1].IPv4(), 8080)}
	e := webTable(services, 5).Edit()
	p := &model.Pool{ID: model.PoolID{Name: "default/echo:tcp", Proto: model.TCP}, Backends: []model.Backend{{Addr: n.server.Addr(), Port: n.server.Port(), Weight: 1, Local: true}}}
	e.SetPool(p)
	route := model.Route{Pool: p.ID}
	e.SetFrontend(&model.Frontend{Key: benchKey, Routes: [model.NumOrigins]model.Route{route, route, route}})
	n.table = e.Table()
	var plane *Plane
	check(b, node.Do(func() (err error) {
		if plane, err = New(kernel.Options{Cgroup: cgroup, StateDir: b.TempDir()}); err != nil {
			return err
		}
		return plane.Apply(context.Background(), n.table, false)
	}))
	b.Cleanup(func() { check(b, node.Do(func() error { return plane.Remove(context.Background()) })) })
	if sockets {
		enter(b, cgroup)
	}
	return n
}

var benchKey = model.Key{Addr: netip.MustParseAddr("10.111.0.1"), Port: 80, Proto: model.TCP}

// enter puts this process into a cgroup until the test ends.
func enter(b testing.TB, dir string) {
	b.Helper()
	root, err := cgroup.Root()
	check(b, err)
	check(b, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0))
	b.Cleanup(func() { check(b, os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte("0"), 0)) })
}

// to is where clients connect to.
func (n *benchNode) to(way string) netip.AddrPort {
	if way == direct {
		return n.server
	}
	return netip.AddrPortFrom(benchKey.Addr, benchKey.Port)
}

// serve accepts connections in a pod and sends back what comes.
func serve(b *testing.B, pod *topology.Host) {
	b.Helper()
	check(b, pod.Do(func() error {
		l, err := net.Listen("tcp", ":8080")
		if err != nil {
			return err
		}
		b.Cleanup(func() { check(b, l.Close()) })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // closed
				}
				go func() {
					_, _ = io.Copy(c, c) // ends when the client is gone, one way or the other
					_ = c.Close()
				}()
			}
		}()
		return nil
	}))
}

// newSocket makes a socket; a stream is reset when it's closed, so that ports don't
// run out.
func newSocket(kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	if kind != unix.SOCK_STREAM {
		return fd, nil
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, fmt.Errorf("set linger: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return 0, fmt.Errorf("set no delay: %w", err)
	}
	return fd, nil
}

func connectTo(fd int, to netip.AddrPort) error {
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	return nil
}

func dial(to netip.AddrPort) (int, error) {
	fd, err := newSocket(unix.SOCK_STREAM)
	if err != nil {
		return 0, err
	}
	return fd, connectTo(fd, to)
}

// pingPong sends a byte and waits for it to come back.
func pingPong(fd int) error {
	b := []byte{1}
	if _, err := unix.Write(fd, b); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if _, err := unix.Read(fd, b); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// eachWay runs a benchmark in the client pod for every way to the backend, with
// few Services and with many.
func eachWay(b *testing.B, run func(b *testing.B, to netip.AddrPort) error) {
	for _, services := range []int{1, 10000} {
		for _, way := range []string{direct, bySocket, byInterfaces} {
			b.Run(fmt.Sprintf("%s/%d", way, services), func(b *testing.B) {
				n := newBenchNode(b, services, way == bySocket)
				check(b, n.client.Do(func() error { return run(b, n.to(way)) }))
			})
		}
	}
}

// BenchmarkConnections is one connection after the other: connect, a byte there
// and back, close.
func BenchmarkConnections(b *testing.B) {
	eachWay(b, func(b *testing.B, to netip.AddrPort) error {
		for b.Loop() {
			fd, err := dial(to)
			if err != nil {
				return err
			}
			if err := pingPong(fd); err != nil {
				return err
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkRoundTrips is a byte there and back on one connection.
func BenchmarkRoundTrips(b *testing.B) {
	eachWay(b, func(b *testing.B, to netip.AddrPort) error {
		fd, err := dial(to)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for b.Loop() {
			if err := pingPong(fd); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkEndpointChange is one endpoint that comes or goes.
func BenchmarkEndpointChange(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%dx10", services), func(b *testing.B) {
			tables := [2]*model.Table{webTable(services, 10)}
			tables[1] = withBackend(tables[0])
			onPlane(b, func(p *Plane) {
				check(b, p.Apply(context.Background(), tables[0], false))
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					n++
					check(b, p.Apply(context.Background(), tables[n%2], false))
				}
			})
		})
	}
}

// BenchmarkLoad is the first Apply, programs included.
func BenchmarkLoad(b *testing.B) {
	for _, services := range []int{1, 10000} {
		b.Run(fmt.Sprintf("%dx5", services), func(b *testing.B) {
			table := webTable(services, 5)
			onPlane(b, func(p *Plane) {
				for b.Loop() {
					check(b, p.Apply(context.Background(), table, false))
					b.StopTimer()
					check(b, p.Remove(context.Background()))
					b.StartTimer()
				}
			})
		})
	}
}

// withBackend is the table with an endpoint more in one pool.
func withBackend(t *model.Table) *model.Table {
	p := *t.Pool(model.PoolID{Name: "default/web-7:http", Proto: model.TCP})
	p.Backends = append(p.Backends[:len(p.Backends):len(p.Backends)], backend(7, 200))
	e := t.Edit()
	e.SetPool(&p)
	return e.Table()
}

// onPlane runs a benchmark on a node without traffic.
func onPlane(b *testing.B, run func(*Plane)) {
	b.Helper()
	lab, err := topology.New("bench-"+strconv.Itoa(os.Getpid()), topology.Options{})
	check(b, err)
	b.Cleanup(func() { check(b, lab.Remove()) })
	node, err := lab.AddNode("node")
	check(b, err)
	cgroup, err := node.Cgroup()
	check(b, err)
	check(b, node.Do(func() error {
		p, err := New(kernel.Options{Cgroup: cgroup, StateDir: b.TempDir()})
		if err != nil {
			return err
		}
		run(p)
		return p.Remove(context.Background())
	}))
}
