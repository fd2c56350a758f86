package announce

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/model"
)

func backend(address string) model.Backend {
	return model.Backend{Addr: netip.MustParseAddr(address), Port: 80, Weight: 1}
}

func TestTracker(t *testing.T) {
	vip := netip.MustParseAddr("192.0.2.1")
	pool := func(name string, backends ...model.Backend) *model.Pool {
		return &model.Pool{ID: model.PoolID{Name: name, Proto: model.TCP}, Backends: backends}
	}
	frontend := func(name string, port uint16, entrance model.FrontendType) *model.Frontend {
		f := &model.Frontend{Key: model.Key{Addr: vip, Port: port, Proto: model.TCP}, Name: name, FrontendType: entrance}
		f.Routes[model.FromOutside] = model.Route{Pool: model.PoolID{Name: name, Proto: model.TCP}, Masquerade: true}
		return f
	}
	var tracker Tracker
	table := model.NewTable()
	step := func(what string, changed bool, want string, edit func(*model.Edit)) {
		t.Helper()
		e := table.Edit()
		edit(e)
		table = e.Table()
		if got := tracker.Update(table); got != changed {
			t.Errorf("%s: changed %v, want %v", what, got, changed)
		}
		s := tracker.Served()[vip]
		if got := fmt.Sprintf("{%v %v %d}", s.Ready, s.Idle, s.Local); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	step("a Service without endpoints", true, "{[] [d/web] 0}", func(e *model.Edit) {
		e.SetFrontend(frontend("d/web:http", 80, model.LoadBalancerIP))
		e.SetPool(pool("d/web:http"))
	})
	step("its endpoint", true, "{[d/web] [] 0}", func(e *model.Edit) { e.SetPool(pool("d/web:http", backend("10.0.0.1"))) })
	step("another endpoint changes nothing", false, "{[d/web] [] 0}", func(e *model.Edit) {
		e.SetPool(pool("d/web:http", backend("10.0.0.1"), backend("10.0.0.2")))
	})
	step("a port without endpoints changes nothing", false, "{[d/web] [] 0}", func(e *model.Edit) {
		e.SetFrontend(frontend("d/web:https", 443, model.LoadBalancerIP))
		e.SetPool(pool("d/web:https"))
	})
	step("a cluster IP is none of it", false, "{[d/web] [] 0}", func(e *model.Edit) {
		e.SetFrontend(frontend("d/inner:http", 81, model.ClusterIP))
		e.SetPool(pool("d/inner:http", backend("10.0.0.1")))
	})
	step("a Service that shares the address", true, "{[d/web] [d/also] 0}", func(e *model.Edit) {
		e.SetFrontend(frontend("d/also:x", 82, model.ExternalIP))
		e.SetPool(pool("d/also:x"))
	})
	step("draining endpoints take no new connections", true, "{[] [d/also d/web] 0}", func(e *model.Edit) {
		p := pool("d/web:http")
		p.Draining = []model.Backend{backend("10.0.0.1")}
		e.SetPool(p)
	})
	step("only endpoints of this node, kept apart by the policy Local", true, "{[d/web] [d/also] 2}", func(e *model.Edit) {
		f := frontend("d/web:http", 80, model.LoadBalancerIP)
		f.Routes[model.FromOutside].Masquerade = false
		e.SetFrontend(f)
		e.SetPool(pool("d/web:http", backend("10.0.0.1"), backend("10.0.0.2")))
	})
	step("one of them goes", true, "{[d/web] [d/also] 1}", func(e *model.Edit) { e.SetPool(pool("d/web:http", backend("10.0.0.1"))) })
	step("all goes", true, "{[] [] 0}", func(e *model.Edit) {
		for _, port := range []uint16{80, 443, 82} {
			e.DeleteFrontend(model.Key{Addr: vip, Port: port, Proto: model.TCP})
		}
	})
	if n := len(tracker.Served()) + len(tracker.frontends) + len(tracker.byPool); n > 0 {
		t.Errorf("%d things are remembered for nothing", n)
	}
}

// Cluster IPs are known where they are asked for. They have no weight, unless only
// this node's endpoints are used.
func TestTrackerOfClusterIPs(t *testing.T) {
	address := netip.MustParseAddr("10.96.0.7")
	e := model.NewTable().Edit()
	for i, local := range []bool{false, true} {
		id := model.PoolID{Name: fmt.Sprint("d/web:", i), Proto: model.TCP, Local: local}
		f := &model.Frontend{Key: model.Key{Addr: address, Port: uint16(80 + i), Proto: model.TCP}, Name: id.Name, FrontendType: model.ClusterIP}
		f.Routes[model.FromOutside] = model.Route{Pool: id}
		e.SetFrontend(f)
		e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{backend("10.0.0.1"), backend("10.0.0.2")}[:2-i]})
	}
	table := e.Table()
	for _, asked := range []bool{false, true} {
		tracker := Tracker{ClusterIPs: asked}
		tracker.Update(table)
		s, ok := tracker.Served()[address]
		if ok != asked || s.ClusterIP != asked || asked && s.Local != 1 {
			t.Errorf("asked for %v: %+v", asked, s)
		}
	}
}

// TestAnywhere: connections to an address go on at any node if those of all its ports do.
func TestAnywhere(t *testing.T) {
	vip := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name   string
		stable []bool // of each port
		want   bool
	}{
		{"all", []bool{true, true}, true}, {"one doesn't", []bool{true, false}, false}, {"none", []bool{false}, false},
	} {
		e := model.NewTable().Edit()
		for i, stable := range c.stable {
			id := model.PoolID{Name: fmt.Sprint("d/web:", i), Proto: model.TCP}
			f := &model.Frontend{Key: model.Key{Addr: vip, Port: uint16(80 + i), Proto: model.TCP}, Name: id.Name, FrontendType: model.LoadBalancerIP}
			f.Routes[model.FromOutside] = model.Route{Pool: id, Masquerade: true, Stable: stable}
			e.SetFrontend(f)
			e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{backend("10.0.0.1")}})
		}
		var tracker Tracker
		tracker.Update(e.Table())
		served := tracker.Served()
		if got := served[vip].Anywhere; got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if got := Both(served, map[netip.Addr]Served{vip: {Anywhere: false}})[vip].Anywhere; got {
			t.Errorf("%s: although not in the next table", c.name)
		}
	}
}
