package nftables

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestCounters has this node's own packets counted by the kernel.
func TestCounters(t *testing.T) {
	inNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"192.0.2.1/32", "10.244.1.2/32"} {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(lo, address); err != nil {
			t.Fatal(err)
		}
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: &net.IPNet{IP: net.IPv4(10, 96, 0, 0), Mask: net.CIDRMask(16, 32)}}); err != nil {
		t.Fatal(err)
	}
	echo(t, "10.244.1.2:8080")

	p := newPlane(t, kernel.Options{CountBytes: true})
	if counts, err := p.frontendCounts(t.Context()); err != nil || len(counts) > 0 {
		t.Fatalf("before anything is there: %v, %v", counts, err)
	}
	table := everything()
	web := model.PoolID{Name: "default/web:http", Proto: model.TCP}
	table = editPool(table, web, func(pool *model.Pool) { pool.Backends = backends("10.244.1.2:8080") })
	empty := model.PoolID{Name: "default/empty:", Proto: model.TCP}
	e := table.Edit()
	e.SetPool(&model.Pool{ID: empty})
	route := model.Route{Pool: empty}
	e.SetFrontend(&model.Frontend{Key: model.Key{Addr: addr("10.96.0.99"), Port: 80, Proto: model.TCP}, Name: empty.Name, Routes: routes(route, route, route)})
	table = e.Table()
	apply(t, p, table, false)
	checkObjects(t, p, table)

	const size = 1000
	for range 3 {
		ask(t, "10.96.0.10:80", size)
	}
	if c, err := net.DialTimeout("tcp", "10.96.0.99:80", 5*time.Second); err == nil {
		t.Fatalf("a frontend without backends answers: %v", c.Close())
	}
	counts := map[string]kernel.Count{}
	list, err := p.frontendCounts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		counts[c.Frontend.String()] = c
	}
	if c := counts["10.96.0.10:80/tcp"]; c.Connections != 3 || c.Refused != 0 || c.In < 3*size || c.Out < 3*size || c.In > 6*size || c.Out > 6*size {
		t.Errorf("counted %+v", c)
	}
	if c := counts["10.96.0.99:80/tcp"]; c.Connections != 0 || c.Refused == 0 {
		t.Errorf("counted %+v of what was refused", c)
	}
	for loopback, want := range map[bool]int{true: 2, false: 1} {
		calls := 0
		p.reader.fault = func() error { calls++; return nil }
		p.loopback.Store(loopback)
		if _, err := p.packetCounts(context.Background()); err != nil {
			t.Error(err)
		}
		if calls != want {
			t.Errorf("with frontends at loopback addresses: %t: %d lists, want %d: all frontends are listed for those only", loopback, calls, want)
		}
	}
	p.reader.fault = nil
	apply(t, p, table, true)
	checkObjects(t, p, table)
	nft(t, "list", "table", "inet", "fairway")

	// A frontend that leads elsewhere, and from elsewhere, keeps what was counted.
	e = table.Edit()
	changed := *table.Frontend(model.Key{Addr: addr("10.96.0.10"), Port: 80, Proto: model.TCP})
	changed.Sources = []netip.Prefix{prefix("192.0.2.0/24")}
	masqueraded := model.Route{Pool: empty, Masquerade: true}
	changed.Routes = routes(route, masqueraded, masqueraded) // as before: the count is in what says so
	e.SetFrontend(&changed)
	table = e.Table()
	apply(t, p, table, false)
	if n := connections(t, p, "10.96.0.10:80/tcp"); n != 3 {
		t.Errorf("%d connections are counted after a change, want 3", n)
	}

	// Another process that counts no bytes takes the chains for that away, and
	// what was counted stays.
	next := newPlane(t, kernel.Options{})
	apply(t, next, table, false)
	checkObjects(t, next, table)
	if listed := nft(t, "list", "table", "inet", "fairway"); strings.Contains(listed, "bytes-prerouting") {
		t.Error("bytes are counted though nobody wants them")
	}
	if n := connections(t, next, "10.96.0.10:80/tcp"); n != 3 {
		t.Errorf("%d connections are counted after a restart, want 3", n)
	}
}

// connections is what was counted of a frontend's.
func connections(t *testing.T, p *Plane, frontend string) uint64 {
	t.Helper()
	list, err := p.frontendCounts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Frontend.String() == frontend {
			return c.Connections
		}
	}
	return 0
}

// echo answers with what it gets.
func echo(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	go func() {
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
	}()
}

func ask(t *testing.T, address string, size int) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing follows
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}
