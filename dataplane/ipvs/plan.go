package ipvs

import (
	"net/netip"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// plan is what there is to do in the kernel, in no order.
type plan struct {
	want    *model.Table
	puts    map[setID]map[ipset.Element]ipset.Mark // to be added, or given this mark
	removes map[setID]map[ipset.Element]ipset.Mark
	servers map[lvs.ServerID]*serverPlan
	// Addresses of kube-ipvs0 go with the entries of setAddresses. These lists
	// are for a comparison with the kernel, where the two may differ.
	bind, unbind map[netip.Addr]bool
	// relayed says that the userspace mode serves, as far as servers don't.
	relayed bool
}

// serverPlan is what there is to do with one virtual server.
type serverPlan struct {
	add, del bool
	pool     *model.Pool // nil if the server goes
	old      *model.Pool // of a server that goes, if known
	lvs.DestinationChanges
}

func newPlan(want *model.Table) *plan {
	return &plan{
		want: want,
		puts: map[setID]map[ipset.Element]ipset.Mark{}, removes: map[setID]map[ipset.Element]ipset.Mark{},
		servers: map[lvs.ServerID]*serverPlan{}, bind: map[netip.Addr]bool{}, unbind: map[netip.Addr]bool{},
	}
}

func (p *plan) put(e entry, m ipset.Mark) {
	if p.puts[e.set] == nil {
		p.puts[e.set] = map[ipset.Element]ipset.Mark{}
	}
	p.puts[e.set][e.Element] = m
	if e.set.kind == setAddresses {
		p.bind[e.Addr] = true
	}
}

func (p *plan) remove(e entry, m ipset.Mark) {
	if p.removes[e.set] == nil {
		p.removes[e.set] = map[ipset.Element]ipset.Mark{}
	}
	p.removes[e.set][e.Element] = m
	if e.set.kind == setAddresses {
		p.unbind[e.Addr] = true
	}
}

func (p *plan) server(id lvs.ServerID) *serverPlan {
	if p.servers[id] == nil {
		p.servers[id] = &serverPlan{}
	}
	return p.servers[id]
}

// become plans the way of a server from one pool, or none, to another.
func (sp *serverPlan) become(old, now *model.Pool) {
	var before []lvs.Destination
	if old != nil {
		before = destinations(old)
	}
	sp.add, sp.pool = old == nil, now
	sp.DestinationChanges = lvs.CompareDestinations(before, destinations(now))
}
