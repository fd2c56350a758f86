package ebpf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// The benchmarks in this file compare ways to one server from one process, which
// takes them in turns, an exchange at a time: whatever else the machine does meets
// all of them. Client and server share a processor, so that what one of them costs
// isn't hidden behind the other. Ways are told by their medians:
//
//	bare     to an endpoint, on a node that has never had programs
//	empty    the same, with programs at the same hooks that do nothing
//	direct   to an endpoint, on the node with the programs and the Services
//	vip      to one Service of that node's
//	vips     to all of them, in no order
//	tc       to one Service by the interfaces: a client whose sockets aren't in the
//	         node's cgroup, as those from outside
//
// What programs take is the kernel's own count of their time (BPF_ENABLE_STATS),
// in a run of its own, since counting costs something too.
const (
	bare    = "bare"
	empty   = "empty"
	direct  = "direct"
	oneVIP  = "vip"
	allVIPs = "vips"
	byTC    = "tc"
)

var waysInTurn = [...]string{bare, empty, direct, oneVIP, allVIPs, byTC}

// site is a node with a client's and a server's pod.
type site struct {
	node           *topology.Node
	client, server *topology.Host
	cgroup         string
	plane          *Plane
	vips           []netip.AddrPort
}

const (
	firstPort = 8080
	endpoints = 5 // of each Service: ports of the server
)

// newSites makes a node with so many Services, and those to compare it with. It
// says which one each way uses.
func newSites(b *testing.B, services int, serve manner) map[string]*site {
	b.Helper()
	lab, err := topology.New("bench-"+strconv.Itoa(os.Getpid()), topology.Options{})
	check(b, err)
	b.Cleanup(func() { check(b, lab.Remove()) })
	with, without, idle := newSite(b, lab, "with", serve), newSite(b, lab, "without", serve), newSite(b, lab, "idle", serve)
	idle.attachEmpty(b)
	table := with.table(services, serve.proto)
	check(b, with.node.Do(func() (err error) {
		if with.plane, err = New(kernel.Options{Cgroup: with.cgroup, StateDir: b.TempDir()}); err != nil {
			return err
		}
		return with.plane.Apply(context.Background(), table, false)
	}))
	b.Cleanup(func() { check(b, with.node.Do(func() error { return with.plane.Remove(context.Background()) })) })
	return map[string]*site{bare: without, empty: idle, direct: with, oneVIP: with, allVIPs: with, byTC: with}
}

// attachEmpty puts programs that do nothing where the plane has its own.
func (s *site) attachEmpty(b *testing.B) {
	b.Helper()
	empty := func(kind ebpf.ProgramType, at ebpf.AttachType, verdict int32) *ebpf.Program {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, AttachType: at, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
		check(b, err)
		b.Cleanup(func() { check(b, program.Close()) })
		return program
	}
	keep := func(l link.Link, err error) {
		check(b, err)
		b.Cleanup(func() { check(b, l.Close()) })
	}
	for hook, at := range hooks {
		kind := ebpf.CGroupSockAddr
		if hook == "release" {
			kind = ebpf.CGroupSock
		}
		keep(link.AttachCgroup(link.CgroupOptions{Path: s.cgroup, Attach: at, Program: empty(kind, at, 1)}))
	}
	check(b, s.node.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				keep(link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Attach: at, Program: empty(ebpf.SchedCLS, at, -1)}))
			}
		}
		return err
	}))
}

func newSite(b *testing.B, lab *topology.Lab, name string, serve manner) *site {
	b.Helper()
	node, err := lab.AddNode(name)
	check(b, err)
	s := &site{node: node}
	for role, host := range map[string]**topology.Host{"client": &s.client, "server": &s.server} {
		pod, err := node.AddPod(role + "-" + name)
		check(b, err)
		*host = pod.Host
	}
	s.cgroup, err = node.Cgroup()
	check(b, err)
	inCgroup(b, s.cgroup, func() {
		for i := range endpoints {
			listen(b, s.server, serve, firstPort+i)
		}
	})
	return s
}

// table is one with Services that all lead to the server.
func (s *site) table(services int, proto model.Protocol) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}})
	for i := range services {
		p := &model.Pool{ID: model.PoolID{Name: fmt.Sprintf("default/web-%d:http", i), Proto: proto}}
		for j := range endpoints {
			p.Backends = append(p.Backends, model.Backend{Addr: s.server.IPv4(), Port: uint16(firstPort + j), Weight: 1, Local: true})
		}
		e.SetPool(p)
		route := model.Route{Pool: p.ID}
		vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80)
		e.SetFrontend(&model.Frontend{Key: model.Key{Addr: vip.Addr(), Port: vip.Port(), Proto: proto}, Routes: [model.NumOrigins]model.Route{route, route, route}})
		s.vips = append(s.vips, vip)
	}
	return e.Table()
}

// to is where a way leads.
func (s *site) to(way string) netip.AddrPort {
	switch way {
	case oneVIP, byTC:
		return s.vips[0]
	case allVIPs:
		return s.vips[rand.IntN(len(s.vips))]
	}
	return netip.AddrPortFrom(s.server.IPv4(), uint16(firstPort+rand.IntN(endpoints)))
}

// inCgroup runs fn while this process is in a cgroup. Sockets belong to the one in
// which they were made.
func inCgroup(b testing.TB, dir string, fn func()) {
	b.Helper()
	root, err := cgroup.Root()
	check(b, err)
	join(b, dir)
	defer join(b, root)
	fn()
}

// onOneProcessor keeps the calling thread on the processor that all of them use.
func onOneProcessor() error {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("stay on a processor: %w", err)
	}
	return nil
}

// manner is how servers serve.
type manner struct {
	proto model.Protocol
	kind  int
	talk  func(fd int) // until the socket is shut down
}

var (
	oneByOne = manner{model.TCP, unix.SOCK_STREAM, func(listener int) { accept(listener, echoStream) }}
	// allAtOnce has a thread for each connection, which takes a while to begin.
	allAtOnce = manner{model.TCP, unix.SOCK_STREAM, func(listener int) {
		accept(listener, func(fd int) {
			go func() {
				if onOneProcessor() == nil {
					echoStream(fd)
				}
			}()
		})
	}}
	datagrams = manner{model.UDP, unix.SOCK_DGRAM, echoDatagrams}
)

// listen serves a port of a pod until the benchmark ends: on threads of its own,
// without a poller.
func listen(b *testing.B, pod *topology.Host, serve manner, port int) {
	b.Helper()
	var fd int
	check(b, pod.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, serve.kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
			return fmt.Errorf("bind to port %d: %w", port, err)
		}
		if serve.proto == model.UDP {
			return nil
		}
		return unix.Listen(fd, 128)
	}))
	done := make(chan error)
	go func() {
		err := onOneProcessor() // the thread ends with this goroutine
		if err == nil {
			serve.talk(fd)
		}
		done <- err
	}()
	b.Cleanup(func() {
		err := unix.Shutdown(fd, unix.SHUT_RDWR)
		if !errors.Is(err, unix.ENOTCONN) { // it wakes who waits all the same
			check(b, err)
		}
		check(b, errors.Join(<-done, unix.Close(fd)))
	})
}

func accept(listener int, serve func(fd int)) {
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			return // shut down
		}
		serve(fd)
	}
}

func echoStream(fd int) {
	defer closeQuietly(fd)
	buffer := make([]byte, 64)
	for {
		n, err := unix.Read(fd, buffer)
		if err != nil || n == 0 {
			return // the client has closed
		}
		if _, err := unix.Write(fd, buffer[:n]); err != nil {
			return
		}
	}
}

func echoDatagrams(fd int) {
	buffer := make([]byte, 64)
	for {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil || n == 0 {
			return // shut down
		}
		if err := unix.Sendto(fd, buffer[:n], 0, from); err != nil {
			return
		}
	}
}

// laps are how long the exchanges of each way took.
type laps map[string][]time.Duration

// measure times an exchange.
func (l laps) measure(way string, exchange func() error) error {
	began := time.Now()
	err := exchange()
	l[way] = append(l[way], time.Since(began))
	if err != nil {
		return fmt.Errorf("%s: %w", way, err)
	}
	return nil
}

// report says what each way took, and what that is of direct.
func (l laps) report(b *testing.B) {
	b.Helper()
	median := func(way string) float64 {
		list := slices.Sorted(slices.Values(l[way]))
		return float64(list[len(list)/2])
	}
	b.ReportMetric(0, "ns/op") // of all ways together, and what prepares them
	for way := range l {
		b.ReportMetric(median(way), way+"-ns")
		if way != direct {
			b.ReportMetric(median(way)/median(direct), way+"/direct")
		}
	}
}

// reportPrograms says what time programs took for an exchange of each way, by
// their hooks.
func (s *site) reportPrograms(b *testing.B, exchange func(way string) error) {
	b.Helper()
	off, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	check(b, err)
	defer func() { check(b, off.Close()) }()
	const times = 1000
	for _, way := range []string{direct, oneVIP, allVIPs, byTC} {
		var lines []string
		all := time.Duration(0)
		before := s.programStats(b)
		for range times {
			check(b, exchange(way))
		}
		for name, now := range s.programStats(b) {
			runs, took := now.RunCount-before[name].RunCount, now.Runtime-before[name].Runtime
			if runs > 0 {
				lines = append(lines, fmt.Sprintf("%s %.1f x %d ns", name, float64(runs)/times, int(took)/int(runs)))
			}
			all += took
		}
		slices.Sort(lines)
		b.Logf("%s: programs %d ns: %s", way, int(all)/times, strings.Join(lines, ", "))
	}
}

// programStats is what the kernel says of each program of the plane's.
func (s *site) programStats(b *testing.B) map[string]*ebpf.ProgramStats {
	b.Helper()
	stats := map[string]*ebpf.ProgramStats{}
	add := func(pin string, program *ebpf.Program, err error) {
		check(b, err)
		name, _, _ := strings.Cut(filepath.Base(pin), "-")
		stats[name], err = program.Stats()
		check(b, errors.Join(err, program.Close()))
	}
	pins, err := filepath.Glob(filepath.Join(s.plane.dir, "*-*"))
	check(b, err)
	for _, pin := range pins {
		info, err := pinnedLink(pin)
		check(b, err)
		program, err := ebpf.NewProgramFromID(info.Program)
		add("socket "+filepath.Base(pin), program, err)
	}
	pins, err = filepath.Glob(filepath.Join(s.plane.dir, "programs", "*", "*"))
	check(b, err)
	for _, pin := range pins {
		program, err := ebpf.LoadPinnedProgram(pin, nil)
		add(pin, program, err)
	}
	return stats
}

// stock are sockets of each way, made beforehand: a process changes its cgroup too
// slowly to do it between exchanges.
type stock struct {
	kind  int
	sites map[string]*site // by way
	fds   map[string][]int
}

// take has a socket of a way's, in the client's pod.
func (s *stock) take(b *testing.B, way string) int {
	b.Helper()
	if len(s.fds[way]) == 0 {
		s.fill(b)
	}
	last := len(s.fds[way]) - 1
	fd := s.fds[way][last]
	s.fds[way] = s.fds[way][:last]
	return fd
}

// fill makes sockets, those of ways on one node in turns. All are in the node's
// cgroup but those that the interfaces have to serve.
func (s *stock) fill(b *testing.B) {
	b.Helper()
	for _, at := range []*site{s.sites[bare], s.sites[empty], s.sites[direct]} {
		inCgroup(b, at.cgroup, func() {
			s.make(b, at, func(way string) bool { return s.sites[way] == at && way != byTC })
		})
	}
	s.make(b, s.sites[byTC], func(way string) bool { return way == byTC })
}

// make makes sockets of some ways in the client's pod.
func (s *stock) make(b *testing.B, at *site, wanted func(way string) bool) {
	b.Helper()
	const atOnce = 32
	check(b, at.client.Do(func() error {
		for n := 0; n < atOnce*len(waysInTurn); n++ {
			way := waysInTurn[n%len(waysInTurn)]
			if !wanted(way) || len(s.fds[way]) >= atOnce {
				continue
			}
			fd, err := newSocket(s.kind)
			if err != nil {
				return err
			}
			s.fds[way] = append(s.fds[way], fd)
		}
		return nil
	}))
}

func (s *stock) close(b *testing.B) {
	b.Helper()
	for _, list := range s.fds {
		for _, fd := range list {
			check(b, unix.Close(fd))
		}
	}
	clear(s.fds)
}

// exchanges is how a benchmark uses a way, and what it leaves when it ends.
type exchanges struct {
	exchange func(way string) error
	end      func() error
}

// inTurns compares all ways, with few Services and with many.
func inTurns(b *testing.B, serve manner, begin func(b *testing.B, s *stock) exchanges) {
	for _, services := range []int{1, 10000} {
		b.Run(strconv.Itoa(services), func(b *testing.B) {
			s := &stock{serve.kind, newSites(b, services, serve), map[string][]int{}}
			defer s.close(b)
			check(b, onOneProcessor())
			do := begin(b, s)
			ways, took := slices.Clone(waysInTurn[:]), laps{}
			for b.Loop() {
				for _, way := range ways {
					check(b, took.measure(way, func() error { return do.exchange(way) }))
				}
				ways = append(ways[1:], ways[0])
			}
			took.report(b)
			s.sites[direct].reportPrograms(b, do.exchange)
			check(b, do.end())
		})
	}
}

// BenchmarkConnections: connect, a byte there and back, close.
func BenchmarkConnections(b *testing.B) {
	inTurns(b, oneByOne, func(b *testing.B, s *stock) exchanges {
		return exchanges{func(way string) error {
			fd := s.take(b, way)
			return errors.Join(connectTo(fd, s.sites[way].to(way)), pingPong(fd), unix.Close(fd))
		}, func() error { return nil }}
	})
}

// BenchmarkRoundTrips: a byte there and back on a connection.
func BenchmarkRoundTrips(b *testing.B) { inTurns(b, allAtOnce, onOpen) }

// BenchmarkConnectedUDP: a datagram there and back on a connected socket.
func BenchmarkConnectedUDP(b *testing.B) { inTurns(b, datagrams, onOpen) }

// onOpen exchanges bytes on a connection that is there.
func onOpen(b *testing.B, s *stock) exchanges {
	open := map[string]int{}
	for way, at := range s.sites {
		open[way] = s.take(b, way)
		check(b, connectTo(open[way], at.to(way)))
	}
	return exchanges{func(way string) error { return pingPong(open[way]) }, func() error { return closeAll(open) }}
}

// BenchmarkDatagrams: a datagram there and back on a socket that isn't
// connected.
func BenchmarkDatagrams(b *testing.B) {
	inTurns(b, datagrams, func(b *testing.B, s *stock) exchanges {
		open := map[string]int{}
		for way := range s.sites {
			open[way] = s.take(b, way)
		}
		return exchanges{func(way string) error {
			return askAndHear(open[way], s.sites[way].to(way))
		}, func() error { return closeAll(open) }}
	})
}

func closeAll(open map[string]int) error {
	var errs []error
	for _, fd := range open {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
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

// askAndHear sends a byte to an address and waits for what comes back from there.
func askAndHear(fd int, to netip.AddrPort) error {
	at := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	if err := unix.Sendto(fd, []byte{1}, 0, at); err != nil {
		return fmt.Errorf("send to %s: %w", to, err)
	}
	_, from, err := unix.Recvfrom(fd, make([]byte, 1), 0)
	if err != nil {
		return fmt.Errorf("hear from %s: %w", to, err)
	}
	// Of several Services with one endpoint the socket hears from any.
	if who, is := from.(*unix.SockaddrInet4); !is || (who.Port == 80) != (at.Port == 80) {
		return fmt.Errorf("hear from %s: it was %v", to, from)
	}
	return nil
}
