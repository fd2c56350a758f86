package packet

import (
	"bufio"
	"cmp"
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

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/bpffs"
	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// rig is a node with the packet path and nothing else: its pods' sockets
// aren't seen.
type rig struct {
	lab     *topology.Lab
	node    *topology.Node
	hosts   map[string]*topology.Host
	dir     string
	store   *maps.Store
	packets *Path
	table   *model.Table
}

func newRig(t *testing.T) *rig {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	lab, err := topology.New("packets-"+strconv.Itoa(os.Getpid()), topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, lab.Remove()) })
	s := &rig{lab: lab, hosts: map[string]*topology.Host{"client": lab.Client()}}
	for _, n := range []struct {
		name string
		pods []string
	}{{"node", []string{"a", "b"}}, {"peer", []string{"c"}}} {
		node, err := lab.AddNode(n.name)
		must(t, err)
		s.hosts[n.name] = node.Host
		if n.name == "node" {
			s.node = node
		}
		for _, name := range n.pods {
			pod, err := node.AddPod(name)
			must(t, err)
			s.hosts[name] = pod.Host
		}
	}
	for name, h := range s.hosts {
		ports := []echo.Port{{Number: 8080, Protocol: "TCP"}, {Number: 8080, Protocol: "UDP"}}
		server, err := echo.Start(name, ports, h.Do)
		must(t, err)
		t.Cleanup(func() { must(t, server.Close()) })
	}
	for i, text := range []string{"10.96.0.0/16", "fd00:10:96::/112"} {
		must(t, s.hosts["client"].Route(netip.MustParsePrefix(text), s.node.Addresses[i]))
	}
	s.start(t)
	return s
}

// start makes the packet path of a new process.
func (s *rig) start(t *testing.T) {
	t.Helper()
	must(t, s.node.Do(func() error {
		spec, err := sock.Programs()
		if err != nil {
			return err
		}
		if s.packets, err = New(nil); err != nil {
			return err
		}
		s.dir = filepath.Join(bpffs.Dir, "fairway", "packets-"+strconv.Itoa(os.Getpid()))
		s.store, err = maps.Open(s.dir, spec, s.packets.spec)
		return err
	}))
	packets, store := s.packets, s.store
	t.Cleanup(func() {
		must(t, s.node.Do(func() error { return packets.Remove(s.dir) }))
		must(t, store.Close())
		must(t, pins.Remove(s.dir))
	})
}

func (s *rig) apply(t *testing.T, table *model.Table) {
	t.Helper()
	must(t, table.Validate())
	_, err := s.store.Compare(table, "")
	must(t, err)
	must(t, s.packets.Load(s.store))
	must(t, s.node.Do(func() error { return s.packets.Attach(s.store, table) }))
	must(t, s.packets.GC(context.Background(), s.store, program.Transition{Old: s.table, Want: table}))
	s.table = table
}

func must(t testing.TB, err error) {
	t.Helper()
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%+v", verifier)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// service is a table with one Service in both families and protocols.
type service struct {
	backends []string
	port     uint16 // of the backends; 8080 if it is 0
	pool     func(*model.Pool)
}

var vips = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")}

func (s *rig) tableOf(v service) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{
		Pods:      model.PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}},
		NodeAddrs: s.node.Addresses,
		Reserved:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
	})
	for i, vip := range vips {
		for _, proto := range []model.Protocol{model.TCP, model.UDP} {
			id := model.PoolID{Name: "default/web:http", Proto: proto, IPv6: vip.Is6()}
			p := &model.Pool{ID: id}
			for _, name := range v.backends {
				p.Backends = append(p.Backends, model.Backend{Addr: s.hosts[name].Addresses[i], Port: cmp.Or(v.port, 8080), Weight: 1})
			}
			if v.pool != nil {
				v.pool(p)
			}
			e.SetPool(p)
			keep, replace := model.Route{Pool: id}, model.Route{Pool: id, Masquerade: true}
			e.SetFrontend(&model.Frontend{Key: model.Key{Addr: vip, Port: 80, Proto: proto}, Name: id.Name,
				Routes: [3]model.Route{keep, replace, replace}})
			e.SetFrontend(&model.Frontend{Key: model.Key{Addr: s.node.Addresses[i], Port: 30080, Proto: proto}, Name: id.Name,
				FrontendType: model.NodePort, Routes: [3]model.Route{replace, replace, replace}})
		}
	}
	return e.Table()
}

// ask says who answers at an address, and whom it sees: "a 10.244.1.3".
func (s *rig) ask(from, network string, to netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := s.hosts[from].DialContext(ctx, network, to.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	return say(c, 30*time.Second)
}

func say(c net.Conn, wait time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && line == "" {
		return "", err
	}
	f := strings.Fields(line)
	if len(f) > 1 {
		if ap, err := netip.ParseAddrPort(f[1]); err == nil {
			f[1] = ap.Addr().Unmap().String()
		}
	}
	return strings.Join(f[:min(2, len(f))], " "), nil
}

// expect checks who answers, and whom it sees: the client, or the node.
func (s *rig) expect(t *testing.T, from, network string, to netip.AddrPort, who, seen string) {
	t.Helper()
	got, err := s.ask(from, network, to)
	if err != nil {
		t.Errorf("%s %s %s: %v", from, network, to, err)
		return
	}
	family := 0
	if to.Addr().Is6() {
		family = 1
	}
	if who == "node" {
		seen = from // what goes to the node's own processes never leaves, and isn't masqueraded
	}
	if want := fmt.Sprintf("%s %s", who, s.hosts[seen].Addresses[family]); got != want {
		t.Errorf("%s %s %s: %q, expected %q", from, network, to, got, want)
	}
}

func (s *rig) expectRefused(t *testing.T, from, network string, to netip.AddrPort) {
	t.Helper()
	start := time.Now()
	_, err := s.ask(from, network, to)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s %s %s: %v after %s, expected connection refused", from, network, to, err, time.Since(start))
	}
}

func TestPackets(t *testing.T) {
	s := newRig(t)
	for _, backend := range []string{"a", "c", "node"} {
		s.apply(t, s.tableOf(service{backends: []string{backend}}))
		for i, vip := range vips {
			to, nodePort := netip.AddrPortFrom(vip, 80), netip.AddrPortFrom(s.node.Addresses[i], 30080)
			for _, network := range []string{"tcp", "udp"} {
				s.expect(t, "b", network, to, backend, "b")
				s.expect(t, "client", network, nodePort, backend, "node")
				s.expect(t, "node", network, to, backend, "node")
				s.expectRefused(t, "node", network, netip.AddrPortFrom(vip, 81))
				s.expect(t, "node", network, nodePort, backend, "node")
				s.expect(t, "client", network, to, backend, "node")
				s.expect(t, "b", network, nodePort, backend, "node")
				s.expectRefused(t, "client", network, netip.AddrPortFrom(vip, 81))
				s.expectRefused(t, "b", network, netip.AddrPortFrom(vip, 81))
				if backend == "a" {
					s.expect(t, "a", network, to, "a", "node")
				}
			}
		}
	}
	s.apply(t, s.tableOf(service{}))
	for _, vip := range vips {
		s.expectRefused(t, "client", "tcp", netip.AddrPortFrom(vip, 80))
		s.expectRefused(t, "b", "udp", netip.AddrPortFrom(vip, 80))
	}
}
