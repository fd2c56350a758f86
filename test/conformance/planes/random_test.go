package planes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/model"
)

// generator makes tables at random, one out of the other, as Services come, go
// and change. They are built as compile builds them (a Service's frontends
// share its pools), but say what no compiler would say.
type generator struct {
	*rand.Rand
	table    *model.Table
	services map[int]*randomService
}

// randomService is what belongs together in a table.
type randomService struct {
	pools [2]model.PoolID // all endpoints, and this node's
	keys  []model.Key
}

const maxServices = 8

func newGenerator(seed uint64) *generator {
	return &generator{
		Rand:     rand.New(rand.NewPCG(seed, 0)),
		table:    model.NewTable(),
		services: map[int]*randomService{},
	}
}

// next makes the next table.
func (g *generator) next() *model.Table {
	e := g.table.Edit()
	if len(g.services) == 0 || g.IntN(8) == 0 {
		e.SetSettings(g.settings())
	}
	for range 1 + g.IntN(4) {
		i := g.IntN(maxServices)
		switch s := g.services[i]; {
		case s == nil:
			g.add(e, i)
		case g.IntN(4) == 0:
			g.remove(e, i)
		case g.IntN(3) == 0:
			g.remove(e, i)
			g.add(e, i)
		default:
			g.fill(e, s)
		}
	}
	g.table = e.Table()
	return g.table
}

func (g *generator) settings() *model.Settings {
	s := &model.Settings{
		Pods: model.PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}},
		NodeAddrs: []netip.Addr{
			netip.MustParseAddr("127.0.0.1"), hosts[NodeName].Addr4, netip.IPv6Loopback(), hosts[NodeName].Addr6,
		},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
	}
	slices.SortFunc(s.NodeAddrs, netip.Addr.Compare)
	switch g.IntN(4) {
	case 0:
		s.Pods = model.PodMatch{Interfaces: []string{"pod*"}}
	case 1:
		s.Pods.Interfaces = []string{"pod2"}
		s.Pods.Prefixes = s.Pods.Prefixes[:1]
	}
	if g.IntN(3) == 0 {
		s.Exempt = []netip.Addr{netip.MustParseAddr("10.96.0.200"), netip.MustParseAddr("fd00:10:96::200")}
	}
	return s
}

// add makes Service number i.
func (g *generator) add(e *model.Edit, i int) {
	proto := []model.Protocol{model.TCP, model.TCP, model.UDP}[g.IntN(3)]
	id := model.PoolID{Name: fmt.Sprintf("default/s%d:p", i), Proto: proto, IPv6: g.IntN(2) == 0}
	s := &randomService{pools: [2]model.PoolID{id, id}}
	s.pools[1].Local = true
	g.services[i] = s
	g.fill(e, s)
	for entrance := range model.FrontendType(4) {
		if g.IntN(2) == 0 {
			continue
		}
		f := &model.Frontend{Key: g.key(i, entrance, id), Name: id.Name, FrontendType: entrance, Sources: g.sources(id.IPv6)}
		for o := range f.Routes {
			f.Routes[o] = model.Route{Pool: s.pools[g.IntN(2)], Masquerade: g.IntN(2) == 0}
		}
		s.keys = append(s.keys, f.Key)
		e.SetFrontend(f)
	}
}

// key gives two Services each the same address, on different ports.
func (g *generator) key(i int, entrance model.FrontendType, id model.PoolID) model.Key {
	host, port := i/2+10, uint16(80+i%2)
	var text string
	switch entrance {
	case model.NodePort:
		return model.Key{Addr: hosts[NodeName].addr(family(id.IPv6)), Port: uint16(30000 + i), Proto: id.Proto}
	case model.ClusterIP:
		text = map[bool]string{false: "10.96.0.%d", true: "fd00:10:96::%d"}[id.IPv6]
	case model.ExternalIP:
		text = map[bool]string{false: "203.0.113.%d", true: "2001:db8::%d"}[id.IPv6]
	case model.LoadBalancerIP:
		text = map[bool]string{false: "203.0.113.1%d", true: "2001:db8::1:%d"}[id.IPv6]
	}
	return model.Key{Addr: netip.MustParseAddr(fmt.Sprintf(text, host)), Port: port, Proto: id.Proto}
}

func family(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func (g *generator) remove(e *model.Edit, i int) {
	for _, k := range g.services[i].keys {
		e.DeleteFrontend(k)
	}
	for _, id := range g.services[i].pools {
		e.DeletePool(id)
	}
	delete(g.services, i)
}

// sources are nil for most frontends.
func (g *generator) sources(v6 bool) []netip.Prefix {
	if g.IntN(4) > 0 {
		return nil
	}
	list := []netip.Prefix{}
	for _, p := range hostList {
		if a := p.addr(family(v6)); g.IntN(2) == 0 {
			list = append(list, netip.PrefixFrom(a, a.BitLen()-8*g.IntN(2)).Masked())
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// fill gives the Service's pools other endpoints.
func (g *generator) fill(e *model.Edit, s *randomService) {
	all := &model.Pool{ID: s.pools[0], Empty: model.Empty(g.IntN(2))}
	if g.IntN(4) == 0 {
		all.Affinity = time.Duration(1+g.IntN(3)) * time.Hour
	}
	for _, p := range hostList {
		b := model.Backend{Addr: p.addr(family(all.ID.IPv6)), Port: echoPorts[g.IntN(len(echoPorts))], Weight: 1, Local: p.Node == NodeName}
		if g.IntN(6) == 0 {
			b.Weight = 3
		}
		switch g.IntN(5) {
		case 0, 1:
			all.Backends = append(all.Backends, b)
		case 2:
			all.Draining = append(all.Draining, b)
		}
	}
	slices.SortFunc(all.Backends, model.Backend.Compare)
	slices.SortFunc(all.Draining, model.Backend.Compare)
	if g.IntN(6) == 0 {
		all.Backends = nil
	}
	local := *all
	local.ID, local.Empty = s.pools[1], model.Empty(g.IntN(2))
	remote := func(b model.Backend) bool { return !b.Local }
	local.Backends = slices.DeleteFunc(slices.Clone(all.Backends), remote)
	local.Draining = slices.DeleteFunc(slices.Clone(all.Draining), remote)
	e.SetPool(all)
	e.SetPool(&local)
}

// packet chooses a packet: mostly to a frontend, sometimes beside one.
func (g *generator) packet() Probe {
	fronts := g.table.SortedFrontends()
	p := Probe{From: hostList[g.IntN(len(hostList))], Proto: []model.Protocol{model.TCP, model.UDP}[g.IntN(2)]}
	if len(fronts) == 0 || g.IntN(8) == 0 {
		text := []string{"10.96.0.200:80", "[fd00:10:96::200]:80", "10.96.9.9:80", "172.30.0.11:30099", "172.30.0.11:8080", "203.0.113.250:80"}
		p.To = netip.MustParseAddrPort(text[g.IntN(len(text))])
		return p
	}
	f := fronts[g.IntN(len(fronts))]
	p.To = netip.AddrPortFrom(f.Addr, f.Port)
	if g.IntN(8) > 0 {
		p.Proto = f.Proto
	}
	return p
}

// observable reports whether packets can show that a plane obeys the verdict: a
// backend that isn't on the node and sees a client beyond the node would answer
// it directly.
func observable(p Probe, v model.Verdict) bool {
	near := p.From.Node == NodeName
	return near || !slices.ContainsFunc(v.Backends(), func(b model.Backend) bool { return !b.Local && !v.Masquerades(b) })
}

// tableText shows a table in a failed test.
func tableText(t *model.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "settings %+v\n", *t.Settings)
	for _, f := range t.SortedFrontends() {
		fmt.Fprintf(&b, "frontend %s %s sources %v\n", f.Key, f.FrontendType, f.Sources)
		for o, r := range f.Routes {
			fmt.Fprintf(&b, "  from %s: %s masquerade %t\n", model.Origin(o), r.Pool, r.Masquerade)
		}
	}
	for _, p := range t.SortedPools() {
		fmt.Fprintf(&b, "pool %s: %v draining %v empty %d affinity %s\n", p.ID, p.Backends, p.Draining, p.Empty, p.Affinity)
	}
	return b.String()
}
