package nftables

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func backends(list ...string) []model.Backend {
	var out []model.Backend
	for _, s := range list {
		ap := netip.MustParseAddrPort(s)
		out = append(out, model.Backend{Addr: ap.Addr(), Port: ap.Port(), Weight: 1})
	}
	return out
}

func routes(pod, node, outside model.Route) [model.NumOrigins]model.Route {
	return [model.NumOrigins]model.Route{model.FromPod: pod, model.FromNode: node, model.FromOutside: outside}
}

// everything is a table with one of all that can be said.
func everything() *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{
		Pods: model.PodMatch{
			Prefixes:   []netip.Prefix{prefix("10.244.0.0/16"), prefix("10.244.1.0/24"), prefix("fd00:10:244::/56")},
			Interfaces: []string{"cali*", "cbr0"},
		},
		NodeAddrs: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")},
		Reserved:  []netip.Prefix{prefix("10.96.0.0/16"), prefix("fd00:10:96::/112")},
		Exempt:    []netip.Addr{addr("10.96.0.77")},
	})
	web := model.PoolID{Name: "default/web:http", Proto: model.TCP}
	webLocal := model.PoolID{Name: "default/web:http", Proto: model.TCP, Local: true}
	web6 := model.PoolID{Name: "default/web:http", Proto: model.TCP, IPv6: true}
	dns := model.PoolID{Name: "kube-system/dns:dns", Proto: model.UDP}
	sticky := model.PoolID{Name: "default/sticky:", Proto: model.TCP}
	sctp := model.PoolID{Name: "default/sctp:", Proto: model.SCTP}
	e.SetPool(&model.Pool{ID: web, Backends: backends("10.244.1.2:8080", "10.244.1.3:8080", "10.244.2.2:8080")})
	e.SetPool(&model.Pool{ID: webLocal, Empty: model.Drop})
	e.SetPool(&model.Pool{ID: web6, Backends: backends("[fd00:10:244:1::2]:8080"), Affinity: 10 * time.Minute})
	e.SetPool(&model.Pool{ID: dns})
	weighted := backends("10.244.1.2:53", "10.244.1.3:53")
	weighted[0].Weight, weighted[1].Weight = 2, 4
	e.SetPool(&model.Pool{ID: sctp, Backends: weighted, Draining: backends("10.244.3.3:53"), Scheduler: model.SourceHashing})
	e.SetPool(&model.Pool{ID: sticky, Backends: backends("10.244.1.2:8080", "10.244.2.2:8080"), Affinity: 3 * time.Hour})

	all := func(id model.PoolID) [model.NumOrigins]model.Route {
		return routes(model.Route{Pool: id}, model.Route{Pool: id, Masquerade: true}, model.Route{Pool: id, Masquerade: true})
	}
	set := func(a string, port uint16, id model.PoolID, r [model.NumOrigins]model.Route, sources ...netip.Prefix) {
		e.SetFrontend(&model.Frontend{Key: model.Key{Addr: addr(a), Port: port, Proto: id.Proto}, Name: id.Name, Routes: r, Sources: sources})
	}
	set("10.96.0.10", 80, web, all(web))
	set("192.0.2.1", 30080, web, routes(model.Route{Pool: web}, model.Route{Pool: web, Masquerade: true}, model.Route{Pool: webLocal}))
	set("203.0.113.9", 80, web, all(web), prefix("198.51.100.0/24"), prefix("10.0.0.0/8"), prefix("10.1.0.0/16"), prefix("2001:db8::/32"), prefix("192.0.2.7/32"))
	set("127.0.0.1", 30080, web, all(web))
	set("fd00:10:96::10", 80, web6, all(web6))
	set("::1", 30080, web6, all(web6))
	set("10.96.0.2", 53, dns, all(dns))
	set("10.96.0.3", 53, sctp, all(sctp))
	set("10.96.0.4", 80, sticky, all(sticky))
	return e.Table()
}

// synthetic is a table of so many Services with so many endpoints each.
func synthetic(services, endpoints int) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(everything().Settings)
	for i := range services {
		id := model.PoolID{Name: fmt.Sprintf("default/service-%d:http", i), Proto: model.TCP}
		p := &model.Pool{ID: id}
		for j := range endpoints {
			n := i*endpoints + j
			p.Backends = append(p.Backends, model.Backend{
				Addr: netip.AddrFrom4([4]byte{10, byte(128 + n>>16), byte(n >> 8), byte(n)}), Port: 8080, Weight: 1})
		}
		e.SetPool(p)
		e.SetFrontend(&model.Frontend{
			Key:  model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Proto: model.TCP},
			Name: id.Name, Routes: routes(model.Route{Pool: id}, model.Route{Pool: id, Masquerade: true}, model.Route{Pool: id, Masquerade: true}),
		})
	}
	return e.Table()
}

// withBackend is the table with one more backend in the first Service.
func withBackend(t *model.Table, b string) *model.Table {
	return editPool(t, model.PoolID{Name: "default/service-0:http", Proto: model.TCP}, func(p *model.Pool) {
		p.Backends = append(p.Backends, backends(b)...)
	})
}

func editPool(t *model.Table, id model.PoolID, edit func(*model.Pool)) *model.Table {
	p := *t.Pool(id)
	p.Backends = append([]model.Backend(nil), p.Backends...)
	edit(&p)
	e := t.Edit()
	e.SetPool(&p)
	return e.Table()
}

// inNamespace moves the test's thread into a network namespace of its own; the
// thread is never given back.
func inNamespace(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test makes network namespaces and must run as root")
	}
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
}

func newPlane(t testing.TB, options kernel.Options) *Plane {
	t.Helper()
	if options.StateDir == "" {
		options.StateDir = t.TempDir()
	}
	p, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}
