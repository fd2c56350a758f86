package ebpf

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

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
		_, err = with.plane.Apply(context.Background(), table, kernel.VerifyNothing)
		return err
	}))
	b.Cleanup(func() {
		check(b, with.node.Do(func() error { return with.plane.Remove(context.Background(), kernel.EndConnections) }))
	})
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
	for hook, at := range sock.Hooks {
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
