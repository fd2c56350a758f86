package ipvs

import (
	"hash/fnv"
	"iter"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// footprint is what one frontend needs in the kernel. Entries of setAddresses
// and of the NodePort sets are shared between frontends, the others its own.
type footprint struct {
	entries map[entry]ipset.Mark
	servers map[lvs.ServerID]model.PoolID // which pool feeds them
}

// markID says what a virtual server of a mark is for.
type markID struct {
	pool       model.PoolID
	masquerade bool
}

// footprint works out what f needs.
func (s *state) footprint(t *model.Table, f *model.Frontend) footprint {
	fp := footprint{entries: map[entry]ipset.Mark{}, servers: map[lvs.ServerID]model.PoolID{}}
	if f == nil || f.Addr.IsLoopback() {
		// IPVS sends nothing from a loopback address to another machine.
		return fp
	}
	put := func(kind setKind, e ipset.Element, m ipset.Mark) { fp.entries[entry{setID{kind, f.Addr.Is6()}, e}] = m }
	file(f, put)
	if bound(t.Settings, f) {
		put(setAddresses, ipset.Element{Addr: f.Addr}, ipset.Mark{})
	}
	if f.Sources != nil {
		fileSources(t.Settings, f, put)
	}
	main := f.Routes[model.FromOutside].Pool
	fp.servers[lvs.KeyServer(f.Key)] = main
	for o, r := range f.Routes {
		pool := t.Pool(r.Pool)
		var m ipset.Mark
		if r.Pool == main {
			m = s.mainMark(f, model.Origin(o))
		} else {
			id := lvs.ServerID{Mark: s.markOf(otherServer(t.Settings, f, model.Origin(o))), IPv6: f.Addr.Is6()}
			fp.servers[id] = r.Pool
			m = ipset.Mark{Value: id.Mark, Mask: ^uint32(0)}
		}
		switch {
		case len(pool.Backends) > 0:
		case pool.Empty == model.Drop:
			m = ipset.Mark{Value: markDrop, Mask: ^uint32(0)}
		default:
			m = ipset.Mark{Value: markRefuse, Mask: ^uint32(0)}
		}
		if m != (ipset.Mark{}) {
			put(originSet(model.Origin(o)), keyElement(f.Key), m)
		}
	}
	return fp
}

// bound reports whether the frontend's address is on kube-ipvs0.
func bound(settings *model.Settings, f *model.Frontend) bool {
	return f.FrontendType != model.NodePort && !isNodeAddr(settings, f.Addr)
}

// otherServer says what the virtual server is for to which an origin's packets go
// that isn't the key's. A process of this node whose source is the very address that it
// asks is masqueraded anyway (KUBE-SERVICES), so that its packets have that bit.
func otherServer(settings *model.Settings, f *model.Frontend, o model.Origin) markID {
	r := f.Routes[o]
	return markID{r.Pool, r.Masquerade || o == model.FromNode && bound(settings, f)}
}

// mainMark is what first packets to the key's own server are marked with.
func (s *state) mainMark(f *model.Frontend, o model.Origin) ipset.Mark {
	if f.Routes[o].Masquerade && (f.FrontendType == model.ClusterIP || !masqueradesAll(f)) {
		return ipset.Mark{Value: s.masquerade, Mask: s.masquerade}
	}
	return ipset.Mark{}
}

// masqueradesAll reports whether the frontend masquerades everybody's packets.
func masqueradesAll(f *model.Frontend) bool {
	return f.Routes[model.FromPod].Masquerade && f.Routes[model.FromNode].Masquerade && f.Routes[model.FromOutside].Masquerade
}

// file puts the frontend where operators look for it. The sets without LOCAL
// in their names make all packets masqueraded, save those that are in the one
// with LOCAL too; KUBE-CLUSTER-IP makes none.
func file(f *model.Frontend, put func(setKind, ipset.Element, ipset.Mark)) {
	key := keyElement(f.Key)
	var all, local setKind
	switch f.FrontendType {
	case model.ExternalIP:
		all, local = setExternalIP, setExternalIPLocal
	case model.LoadBalancerIP:
		all, local = setLoadBalancer, setLoadBalancerLocal
	case model.NodePort:
		switch f.Proto {
		case model.TCP:
			all, local, key = setNodePortTCP, setNodePortLocalTCP, ipset.Element{Port: f.Port}
		case model.UDP:
			all, local, key = setNodePortUDP, setNodePortLocalUDP, ipset.Element{Port: f.Port}
		default:
			all, local = setNodePortSCTP, setNodePortLocalSCTP
		}
	default:
		put(setClusterIP, key, ipset.Mark{})
		return
	}
	put(all, key, ipset.Mark{})
	if !masqueradesAll(f) {
		put(local, key, ipset.Mark{})
	}
}

// fileSources lists who may reach the frontend. A process of this node
// that reaches for an address of kube-ipvs0 has that address itself for its
// source, so it may if one of the node's other addresses may.
func fileSources(settings *model.Settings, f *model.Frontend, put func(setKind, ipset.Element, ipset.Mark)) {
	put(setFirewall, keyElement(f.Key), ipset.Mark{})
	source := keyElement(f.Key)
	for _, p := range f.Sources {
		if p.Addr().Is6() != f.Addr.Is6() {
			continue
		}
		for _, half := range halves(p) {
			source.Net = half
			put(setSourceCIDR, source, ipset.Mark{})
		}
		if slices.ContainsFunc(settings.NodeAddrs, p.Contains) {
			source.Net = hostPrefix(f.Addr)
			put(setSourceCIDR, source, ipset.Mark{})
		}
	}
}

// shared reports whether several frontends or pools may need one entry.
func (e entry) shared() bool {
	switch e.set.kind {
	case setAddresses, setLoopBack, setNodePortTCP, setNodePortLocalTCP, setNodePortUDP, setNodePortLocalUDP:
		return true
	}
	return false
}

func isNodeAddr(settings *model.Settings, a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(settings.NodeAddrs, a, netip.Addr.Compare)
	return found
}

// loopBack lists the entries with which a pool's backends may reach themselves.
func loopBack(p *model.Pool) map[entry]bool {
	entries := map[entry]bool{}
	if p == nil {
		return entries
	}
	for _, list := range [][]model.Backend{p.Backends, p.Draining} {
		for _, b := range list {
			entries[entry{
				setID{setLoopBack, p.ID.IPv6},
				ipset.Element{Addr: b.Addr, Port: b.Port, Proto: p.ID.Proto, Net: hostPrefix(b.Addr)},
			}] = true
		}
	}
	return entries
}

// markOf is the mark of a virtual server: a hash of what it is for, so that it
// is the same in every process, or the next free one. It stays as long as the
// server is needed.
func (s *state) markOf(id markID) uint32 {
	if m, ok := s.marks[id]; ok {
		return m
	}
	for m := range id.candidates(s.masquerade) {
		if _, taken := s.marked[m]; !taken {
			s.marks[id], s.marked[m] = m, id
			return m
		}
	}
	panic("unreachable: there are always more")
}

// candidates are the marks that a virtual server may have, the first choice first.
func (id markID) candidates(masquerade uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		h := fnv.New32a()
		h.Write([]byte(id.pool.String()))
		for n := h.Sum32(); ; n++ {
			m := markRange | n&^(markRangeMask|bypassBit|masquerade)
			if m&^markRangeMask < firstPoolMark {
				continue
			}
			if id.masquerade {
				m |= masquerade
			}
			if !yield(m) {
				return
			}
		}
	}
}
