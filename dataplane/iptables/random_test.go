package iptables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/model"
)

// Random tables: every feature of the model, in a small world, so that things
// collide.

var protocols = []model.Protocol{model.TCP, model.UDP, model.SCTP}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func randomAddr(r *rand.Rand, ipv6 bool, v4, v6 string, n int) netip.Addr {
	base := v4
	if ipv6 {
		base = v6
	}
	a := netip.MustParseAddr(base)
	for range r.IntN(n) + 1 {
		a = a.Next()
	}
	return a
}

func randomBackends(r *rand.Rand, id model.PoolID, most int) []model.Backend {
	var list []model.Backend
	for range r.IntN(most + 1) {
		b := model.Backend{
			Addr: randomAddr(r, id.IPv6, "10.244.1.0", "fd00:244::", 20), Port: uint16(8080 + r.IntN(2)),
			Weight: pick[uint16](r, 1, 1, 1, 3), Local: id.Local || r.IntN(2) == 0,
		}
		if r.IntN(8) == 0 {
			b.Addr = randomAddr(r, id.IPv6, "192.168.7.0", "fd00:7::", 90)
		}
		list = append(list, b)
	}
	slices.SortFunc(list, model.Backend.Compare)
	return slices.CompactFunc(list, func(a, b model.Backend) bool { return a.Compare(b) == 0 })
}

func randomPool(r *rand.Rand, id model.PoolID) *model.Pool {
	p := &model.Pool{ID: id, Backends: randomBackends(r, id, 4), Empty: pick(r, model.Reject, model.Drop)}
	if r.IntN(4) == 0 {
		p.Affinity = pick(r, time.Minute, 3*time.Hour)
	}
	for _, b := range randomBackends(r, id, 1) {
		if !has(p.Backends, b) {
			p.Draining = append(p.Draining, b)
		}
	}
	return p
}

func randomID(r *rand.Rand, ipv6 bool, services int) model.PoolID {
	n := r.IntN(services)
	return model.PoolID{
		Name: fmt.Sprintf("ns/svc-%d:http", n), Proto: protocols[n%3], IPv6: ipv6, Local: r.IntN(3) == 0,
	}
}

func randomFrontend(r *rand.Rand, ipv6 bool, services int) (*model.Frontend, []model.PoolID) {
	id := randomID(r, ipv6, services)
	f := &model.Frontend{Name: id.Name, FrontendType: pick(r, model.ClusterIP, model.ClusterIP, model.NodePort, model.ExternalIP, model.LoadBalancerIP)}
	f.Key = model.Key{Addr: randomAddr(r, ipv6, "10.96.0.0", "fd00:96::", 3*services), Port: uint16(80 + r.IntN(2)), Proto: id.Proto}
	switch f.FrontendType {
	case model.NodePort:
		f.Addr, f.Port = randomAddr(r, ipv6, "192.168.1.0", "fd00:1::", pick(r, 3, 3, 14)), uint16(30000+r.IntN(2*services))
		if r.IntN(20) == 0 {
			f.Addr = pick(r, netip.MustParseAddr("127.0.0.1"))
			if ipv6 {
				f.Addr = netip.IPv6Loopback()
			}
		}
	case model.ExternalIP, model.LoadBalancerIP:
		f.Addr = randomAddr(r, ipv6, "203.0.113.0", "2001:db8::", 5)
		f.Port = uint16(r.IntN(services) + 1)
		if r.IntN(2) == 0 {
			f.Sources = []netip.Prefix{netip.PrefixFrom(randomAddr(r, ipv6, "198.51.100.0", "2001:db8:1::", 3), 32)}
		} else if r.IntN(8) == 0 {
			f.Sources = []netip.Prefix{}
		}
	}
	other := id
	other.Local = !id.Local
	for o := range f.Routes {
		f.Routes[o] = model.Route{Pool: id, Masquerade: r.IntN(2) == 0}
		if f.FrontendType != model.ClusterIP && r.IntN(3) == 0 || r.IntN(20) == 0 {
			f.Routes[o].Pool = other
		}
	}
	return f, []model.PoolID{id, other}
}

func randomSettings(r *rand.Rand) *model.Settings {
	s := &model.Settings{
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/108")},
	}
	for range r.IntN(30) {
		s.Exempt = append(s.Exempt, randomAddr(r, false, "10.96.200.0", "", 200), randomAddr(r, true, "", "fd00:96::f:0", 200))
	}
	slices.SortFunc(s.Exempt, netip.Addr.Compare)
	s.Exempt = slices.Compact(s.Exempt)
	s.Pods.Prefixes = [][]netip.Prefix{
		nil,
		{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")},
		{netip.MustParsePrefix("10.244.0.0/17"), netip.MustParsePrefix("10.244.128.0/17"), netip.MustParsePrefix("fd00:244::/56")},
	}[r.IntN(3)]
	s.Pods.Interfaces = [][]string{nil, {"cali*"}, {"eth7", "veth*"}}[r.IntN(3)]
	return s
}

// randomEdit changes a few things.
func randomEdit(r *rand.Rand, t *model.Table, services, changes int) *model.Table {
	e := t.Edit()
	fronts := t.SortedFrontends()
	pools := map[model.PoolID]bool{}
	for p := range t.Pools() {
		pools[p.ID] = true
	}
	for range changes {
		switch r.IntN(6) {
		case 0, 1:
			f, ids := randomFrontend(r, r.IntN(2) == 0, services)
			for _, id := range ids {
				if !pools[id] {
					e.SetPool(randomPool(r, id))
					pools[id] = true
				}
			}
			e.SetFrontend(f)
		case 2, 3:
			id := randomID(r, r.IntN(2) == 0, services)
			e.SetPool(randomPool(r, id))
			pools[id] = true
		case 4:
			if len(fronts) > 0 {
				e.DeleteFrontend(fronts[r.IntN(len(fronts))].Key)
			}
		case 5:
			if r.IntN(10) == 0 {
				e.SetSettings(randomSettings(r))
			}
		}
	}
	return e.Table()
}
