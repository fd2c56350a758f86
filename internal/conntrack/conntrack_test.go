package conntrack

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/model"
)

var (
	vip      = netip.MustParseAddrPort("10.96.0.10:53")
	nodePort = netip.MustParseAddrPort("192.0.2.1:30053")
	one      = netip.MustParseAddrPort("10.244.1.2:5353")
	two      = netip.MustParseAddrPort("10.244.2.2:5353")
	client   = netip.MustParseAddrPort("10.244.1.9:40000")
)

// service is a table with one Service port that has a cluster IP and a node
// port.
func service(proto model.Protocol, edit func(*model.Pool), backends ...netip.AddrPort) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
	p := &model.Pool{ID: model.PoolID{Name: "default/dns:dns", Proto: proto}}
	for _, b := range backends {
		p.Backends = append(p.Backends, model.Backend{Addr: b.Addr(), Port: b.Port(), Weight: 1})
	}
	if edit != nil {
		edit(p)
	}
	e.SetPool(p)
	route := model.Route{Pool: p.ID}
	for _, key := range []netip.AddrPort{vip, nodePort} {
		e.SetFrontend(&model.Frontend{
			Key:  model.Key{Addr: key.Addr(), Port: key.Port(), Proto: proto},
			Name: p.ID.Name, Routes: [model.NumOrigins]model.Route{route, route, route},
		})
	}
	return e.Table()
}

func drain(b netip.AddrPort) func(*model.Pool) {
	return func(p *model.Pool) {
		p.Draining = []model.Backend{{Addr: b.Addr(), Port: b.Port(), Weight: 1}}
	}
}

func orphans(o model.Orphans, deadline time.Duration) func(*model.Pool) {
	return func(p *model.Pool) { p.Orphans, p.OrphanDeadline = o, deadline }
}

func TestFate(t *testing.T) {
	none := model.NewTable()
	forget, keep := Fate{Forget: true}, Fate{}
	for _, c := range []struct {
		name      string
		old, want *model.Table
		proto     model.Protocol
		frontend  netip.AddrPort
		backend   netip.AddrPort
		fate      Fate
	}{
		{"backend gone", service(model.UDP, nil, one, two), service(model.UDP, nil, two), model.UDP, vip, one, forget},
		{"backend gone, through the node port", service(model.UDP, nil, one, two), service(model.UDP, nil, two), model.UDP, nodePort, one, forget},
		{"another backend gone", service(model.UDP, nil, one, two), service(model.UDP, nil, two), model.UDP, vip, two, keep},
		{"backend drains", service(model.UDP, nil, one, two), service(model.UDP, drain(one), two), model.UDP, vip, one, keep},
		{"backend has drained", service(model.UDP, drain(one), two), service(model.UDP, nil, two), model.UDP, vip, one, forget},
		{"first backend", service(model.UDP, nil), service(model.UDP, nil, one), model.UDP, nodePort, nodePort, forget},
		{"second backend", service(model.UDP, nil, one), service(model.UDP, nil, one, two), model.UDP, vip, one, keep},
		{"frontend comes", none, service(model.UDP, nil, one), model.UDP, vip, vip, forget},
		{"frontend goes", service(model.UDP, nil, one), none, model.UDP, vip, one, forget},
		{"not ours", service(model.UDP, nil, one), none, model.UDP, netip.MustParseAddrPort("203.0.113.1:53"), one, keep},
		{"after a start", nil, service(model.UDP, nil, one), model.UDP, vip, two, forget},
		{"after a start, current", nil, service(model.UDP, nil, one), model.UDP, vip, one, keep},
		{"after a start, no frontend any more", nil, service(model.UDP, nil, one), model.UDP, netip.MustParseAddrPort("10.96.0.11:53"), one, forget},
		{"after a start, not translated", nil, service(model.UDP, nil, one), model.UDP, netip.MustParseAddrPort("10.244.0.11:53"), netip.MustParseAddrPort("10.244.0.11:53"), keep},
		{"TCP is kept", service(model.TCP, nil, one, two), service(model.TCP, nil, two), model.TCP, vip, one, keep},
		{"TCP reset", service(model.TCP, nil, one), service(model.TCP, orphans(model.OrphansReset, 0)), model.TCP, vip, one, forget},
		{"TCP reset, another backend", service(model.TCP, nil, one, two), service(model.TCP, orphans(model.OrphansReset, 0), two), model.TCP, vip, two, keep},
		{"TCP deadline", service(model.TCP, nil, one), service(model.TCP, orphans(model.OrphansDeadline, time.Minute), two), model.TCP, vip, one, Fate{Expire: time.Minute}},
		{"TCP reset, Service deleted", service(model.TCP, orphans(model.OrphansReset, 0), one), none, model.TCP, vip, one, forget},
		{"TCP is kept, last backend", service(model.TCP, nil, one), service(model.TCP, nil), model.TCP, vip, one, keep},
		{"TCP SYN, last backend", service(model.TCP, nil, one), service(model.TCP, nil), model.TCP, nodePort, one, forget},
		{"TCP SYN, another backend", service(model.TCP, orphans(model.OrphansReset, 0), one, two), service(model.TCP, orphans(model.OrphansReset, 0), two), model.TCP, vip, two, keep},
		{"TCP SYN from before", nil, service(model.TCP, nil, one), model.TCP, vip, vip, forget},
	} {
		s := Plan(c.old, c.want, c.want.Since(c.old))
		got := Fate{}
		if s != nil {
			got = s.Fate(&Flow{Proto: c.proto, Client: client, Frontend: c.frontend, Backend: c.backend, Replied: !strings.Contains(c.name, "SYN")})
		}
		if got != c.fate {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.fate)
		}
	}
}

// TestPlanSaysNothingToDo: a listing of the kernel's flows costs, so there must
// be none when nothing can be stale.
func TestPlanSaysNothingToDo(t *testing.T) {
	for _, c := range []struct {
		name      string
		old, want *model.Table
	}{
		{"nothing changed", service(model.UDP, nil, one), service(model.UDP, nil, one)},
		{"UDP backend comes", service(model.UDP, nil, one), service(model.UDP, nil, one, two)},
		{"UDP backend drains", service(model.UDP, nil, one, two), service(model.UDP, drain(one), two)},
		{"TCP backend goes", service(model.TCP, nil, one, two), service(model.TCP, nil, two)},
		{"TCP Service comes", model.NewTable(), service(model.TCP, nil, one)},
		{"TCP Service goes", service(model.TCP, nil, one), model.NewTable()},
	} {
		if s := Plan(c.old, c.want, c.want.Since(c.old)); s != nil {
			t.Errorf("%s: wants to look at %v flows", c.name, s.Protocols())
		}
	}
}
