package maps

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/model"
)

var randomProtocols = []model.Protocol{model.TCP, model.UDP, model.SCTP}

// randomAddr is one of few addresses, so that things meet.
func randomAddr(r *rand.Rand, ipv6 bool, net byte) netip.Addr {
	n := byte(r.IntN(12))
	if ipv6 {
		return netip.AddrFrom16([16]byte{0xfd, 0, 0, net, 15: n})
	}
	return netip.AddrFrom4([4]byte{10, net, 0, n})
}

func randomPrefixes(r *rand.Rand, net byte) []netip.Prefix {
	var list []netip.Prefix
	for _, ipv6 := range []bool{false, true} {
		for range r.IntN(3) {
			a := randomAddr(r, ipv6, net)
			list = append(list, netip.PrefixFrom(a, a.BitLen()-r.IntN(4)).Masked())
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// The parts of the network: clients, Services, backends.
const (
	ofClients  = 1
	ofServices = 96
	ofBackends = 2
)

// randomTable changes something in a table.
func randomTable(r *rand.Rand, last *model.Table) *model.Table {
	e := last.Edit()
	if r.IntN(3) == 0 || last.NumPools() == 0 {
		e.SetSettings(&model.Settings{Pods: model.PodMatch{Prefixes: randomPrefixes(r, ofClients)}, Reserved: randomPrefixes(r, ofServices),
			Exempt: []netip.Addr{randomAddr(r, false, ofServices)}})
	}
	for i := range 8 {
		if r.IntN(3) > 0 && last.NumPools() > 0 {
			continue
		}
		proto, ipv6 := randomProtocols[i%3], i%2 == 1
		var pools []model.PoolID
		stable := map[model.PoolID]bool{}
		for j := range 2 {
			p := randomPool(r, model.PoolID{Name: fmt.Sprintf("default/s%d-%d:p", i, j), Proto: proto, IPv6: ipv6})
			p.Stable = p.Scheduler == model.MaglevHashing || p.Scheduler == model.MaglevPortHashing
			e.SetPool(p)
			pools, stable[p.ID] = append(pools, p.ID), p.Stable
		}
		for j := range 3 {
			k := model.Key{Addr: netip.AddrFrom4([4]byte{10, ofServices, 0, byte(i)}), Port: uint16(80 + j), Proto: proto}
			if ipv6 {
				k.Addr = netip.AddrFrom16([16]byte{0xfd, 0, 0, ofServices, 15: byte(i)})
			}
			if r.IntN(4) == 0 {
				e.DeleteFrontend(k)
				continue
			}
			f := &model.Frontend{Key: k, Name: pools[0].Name}
			for o := range f.Routes {
				f.Routes[o] = model.Route{Pool: pools[r.IntN(2)], Masquerade: r.IntN(2) == 0}
				f.Routes[o].Direct = f.Routes[o].Masquerade && f.Proto != model.SCTP && r.IntN(2) == 0
				f.Routes[o].Stable = f.Routes[o].Direct && f.Proto == model.TCP && stable[f.Routes[o].Pool]
			}
			if r.IntN(3) == 0 {
				f.Sources = append([]netip.Prefix{}, randomPrefixes(r, ofClients)...)
			}
			e.SetFrontend(f)
		}
	}
	return e.Table()
}

func randomPool(r *rand.Rand, id model.PoolID) *model.Pool {
	p := &model.Pool{ID: id, Empty: model.Empty(r.IntN(2)), Affinity: time.Duration(r.IntN(2)) * time.Hour}
	p.Scheduler = append([]model.Scheduler{""}, model.Schedulers()...)[r.IntN(len(model.Schedulers())+1)]
	seen := map[netip.AddrPort]bool{}
	for range r.IntN(6) {
		net := byte(ofBackends)
		if r.IntN(4) == 0 {
			net = ofClients // a client may be its own backend
		}
		b := model.Backend{Addr: randomAddr(r, id.IPv6, net), Port: uint16(8080 + r.IntN(2)), Weight: uint16(1 + r.IntN(3)), Local: r.IntN(2) == 0}
		switch {
		case seen[b.AddrPort()]:
			continue
		case r.IntN(4) == 0:
			p.Draining = append(p.Draining, b)
		default:
			p.Backends = append(p.Backends, b)
		}
		seen[b.AddrPort()] = true
	}
	slices.SortFunc(p.Backends, model.Backend.Compare)
	slices.SortFunc(p.Draining, model.Backend.Compare)
	return p
}

func randomPacket(r *rand.Rand) model.Packet {
	ipv6 := r.IntN(2) == 0
	return model.Packet{
		Src: randomAddr(r, ipv6, ofClients), Dst: randomAddr(r, ipv6, ofServices), SrcPort: 40000, DstPort: uint16(80 + r.IntN(4)),
		Proto: randomProtocols[r.IntN(3)], In: []string{"", "eth0"}[r.IntN(2)],
	}
}
