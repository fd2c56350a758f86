package iptables

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestCounters has this node's own packets counted, by both variants: through
// changes that rewrite what counts, and by the next process.
func TestCounters(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		local(t, "192.0.2.1/32", "10.244.1.2/32", "10.96.0.0/24")
		listener, err := net.Listen("tcp", "10.244.1.2:8080")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() //nolint:errcheck // ends with the test
		go echo(listener)

		p := newPlane(t, o)
		if counts, err := p.frontendCounts(t.Context()); err != nil || len(counts) > 0 {
			t.Fatalf("before anything is there: %v, %v", counts, err)
		}
		table := counted("default/web:http", "default/node:", "default/empty:")
		apply(t, p, table, false)
		check(t, p, table)
		for _, address := range []string{"10.96.0.10:80", "10.96.0.10:80", "192.0.2.1:30080", "127.0.0.1:30080"} {
			if err := ask(address); err != nil {
				t.Fatalf("%s: %v", address, err)
			}
		}
		if err := ask("10.96.0.12:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("without endpoints: %v", err)
		}
		expectCounts(t, p, map[string]kernel.Count{
			"default/web:http": {Connections: 2}, "default/node:": {Connections: 2}, "default/empty:": {Refused: 1},
		})
		packets, err := p.packetCounts(t.Context())
		if err != nil || packets.LocalhostNodePorts != 1 || len(packets.Rules) == 0 {
			t.Errorf("packets %+v, %v", packets, err)
		}

		// What another Service's coming rewrites counts on.
		more := counted("default/web:http", "default/node:", "default/empty:", "default/new:")
		apply(t, p, more, false)
		check(t, p, more)
		if err := ask("10.96.0.10:80"); err != nil {
			t.Fatal(err)
		}
		expectCounts(t, p, map[string]kernel.Count{
			"default/web:http": {Connections: 3}, "default/node:": {Connections: 2}, "default/empty:": {Refused: 1},
		})
		next := newPlane(t, o)
		apply(t, next, more, false)
		if counts, err := next.frontendCounts(t.Context()); err != nil || len(counts) == 0 {
			t.Errorf("after a restart: %v, %v", counts, err)
		}
	})
}

// expectCounts waits until this is counted, by Service port: readings are kept
// apart.
func expectCounts(t *testing.T, p *Plane, want map[string]kernel.Count) {
	t.Helper()
	var got map[string]kernel.Count
	for range wait.Tries(30 * time.Second) {
		list, err := p.frontendCounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = map[string]kernel.Count{}
		for _, c := range list {
			f := p.inForce.Load().Frontend(c.Frontend)
			if f == nil {
				t.Fatalf("counted of %s, which isn't there", c.Frontend)
			}
			c.Frontend = model.Key{}
			got[f.Name] = c
		}
		if maps.Equal(got, want) {
			return
		}
	}
	t.Errorf("counted %+v, want %+v", got, want)
}

// counted are Services by these names: at 10.96.0.10 and so on; "node" has a node
// port, and "empty" no endpoint.
func counted(names ...string) *model.Table {
	e := model.NewTable().Edit()
	node, localhost := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("127.0.0.1")
	e.SetSettings(&model.Settings{NodeAddrs: []netip.Addr{node}, Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}})
	for i, name := range names {
		pool := &model.Pool{ID: model.PoolID{Name: name, Proto: model.TCP}}
		if name != "default/empty:" {
			pool.Backends = []model.Backend{{Addr: netip.MustParseAddr("10.244.1.2"), Port: 8080, Weight: 1, Local: true}}
		}
		e.SetPool(pool)
		route := model.Route{Pool: pool.ID}
		add := func(a netip.Addr, port uint16, entrance model.FrontendType, route model.Route) {
			e.SetFrontend(&model.Frontend{
				Key: model.Key{Addr: a, Port: port, Proto: model.TCP}, Name: name, FrontendType: entrance, Routes: [model.NumOrigins]model.Route{route, route, route},
			})
		}
		add(netip.AddrFrom4([4]byte{10, 96, 0, byte(10 + i)}), 80, model.ClusterIP, route)
		if name == "default/node:" {
			route.Masquerade = true
			add(node, 30080, model.NodePort, route)
			add(localhost, 30080, model.NodePort, route)
		}
	}
	return e.Table()
}

// local gives loopback these addresses, and routes the last to it.
func local(t *testing.T, addresses ...string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses[:len(addresses)-1] {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(lo, address); err != nil {
			t.Fatal(err)
		}
	}
	_, to, err := net.ParseCIDR(addresses[len(addresses)-1])
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: to}); err != nil {
		t.Fatal(err)
	}
}

func echo(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer c.Close() //nolint:errcheck // the client looks at what it got
			if _, err := io.Copy(c, c); err != nil {
				return
			}
		}()
	}
}

func ask(address string) error {
	c, err := net.DialTimeout("tcp", address, 30*time.Second)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing follows
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// BenchmarkCounters is what a scrape costs at 10,000 Services.
func BenchmarkCounters(b *testing.B) {
	for _, v := range iptables.Variants() {
		b.Run(string(v), func(b *testing.B) {
			inNamespace(b)
			p := newPlane(b, kernel.Options{IPTablesVariant: string(v), StateDir: b.TempDir()})
			apply(b, p, cluster(10000, 5), false)
			read := func() {
				if err := p.readAll(b.Context(), p.inForce.Load()); err != nil {
					b.Fatal(err)
				}
			}
			measure(b, read, func() {})
		})
	}
}
