package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// retire looks at servers that are to go, and has those stay that still have
// connections: with orphans only, refusing new connections. For that it changes
// the plan. A retired server is one with orphans that the state doesn't know;
// one that is needed again serves again.
func (p *Plane) retire(plan *plan) error {
	for id, sp := range plan.servers {
		if sp.add && len(p.orphans[id]) > 0 {
			plan.restore(id)
		}
		keep, _ := ending(sp.old, time.Now())
		if !sp.del || !keep || id.Key.Proto == model.UDP {
			continue
		}
		list, loads, err := lvs.ReadDestinations(p.balancer, lvs.ToService(id, lvs.Service{}))
		if lvs.Gone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list destinations of virtual server %s: %w", id, err)
		}
		quiet := func(d lvs.Destination) bool { return drainingConns(id, plan.want.Settings, loads[d.Addr]) == 0 }
		if !slices.ContainsFunc(list, func(d lvs.Destination) bool { return !quiet(d) }) {
			continue
		}
		for _, d := range list {
			if quiet(d) {
				err = p.removeDestination(id, d.Addr)
			} else {
				err = p.release(id, sp.old, d)
			}
			if err != nil {
				return err
			}
		}
		sp.del = false
		plan.refuse(id)
	}
	return nil
}

// drainingConns is how many connections keep a server that is to go. Where the
// model wants its address refused, and where only marks lead to it, all of them: one
// that is still being made isn't among the active ones. Where packets should pass, as
// if there were no server, only those that something could still be said over.
func drainingConns(id lvs.ServerID, settings *model.Settings, l lvs.Load) int {
	if id.Mark != 0 || reserved(settings, id.Key.Addr) {
		return l.Total
	}
	return l.Active
}

// refusals are the entries that keep new connections from a retired server.
func refusals(id lvs.ServerID) []entry {
	var list []entry
	for o := range model.Origin(model.NumOrigins) {
		list = append(list, entry{setID{originSet(o), id.IPv6}, keyElement(id.Key)})
	}
	return list
}

func addressEntry(a netip.Addr) entry {
	return entry{setID{setAddresses, a.Is6()}, ipset.Element{Addr: a}}
}

// refuse keeps a retired server's address, and new connections from it.
func (p *plan) refuse(id lvs.ServerID) {
	if id.Mark != 0 {
		return
	}
	verdict := markRefuse
	if !reserved(p.want.Settings, id.Key.Addr) && !isNodeAddr(p.want.Settings, id.Key.Addr) {
		verdict = markDrop // as what comes to other ports of an external address
	}
	for _, e := range refusals(id) {
		delete(p.removes[e.set], e.Element)
		p.put(e, ipset.Mark{Value: verdict, Mask: ^uint32(0)})
	}
	address := addressEntry(id.Key.Addr)
	delete(p.removes[address.set], address.Element)
	delete(p.unbind, id.Key.Addr)
}

// restore lets new connections to a server that was retired.
func (p *plan) restore(id lvs.ServerID) {
	for _, e := range refusals(id) {
		if _, marked := p.puts[e.set][e.Element]; !marked && id.Mark == 0 {
			p.remove(e, ipset.Mark{})
		}
	}
}

// retired reports whether the server is there only for the connections it has.
func (p *Plane) retired(id lvs.ServerID) bool {
	if p.state == nil {
		return false
	}
	_, serves := p.state.servers[id]
	return !serves && len(p.orphans[id]) > 0
}

// deleteDrained takes a retired server away whose connections have ended, and what kept
// new ones from it.
func (p *Plane) deleteDrained(id lvs.ServerID) error {
	if err := p.removeServer(id); err != nil || id.Mark != 0 {
		return err
	}
	a := id.Key.Addr
	needed := p.state.shared[addressEntry(a)] > 0
	for other := range p.orphans {
		needed = needed || other.Key.Addr == a
	}
	list := refusals(id)
	if !needed {
		if there, err := p.dummy.addresses(); err != nil || !there[a] {
			needed = true // a node's own address
		}
	}
	if !needed {
		if err := p.dummy.unbind(a); err != nil {
			return err
		}
		list = append(list, addressEntry(a))
	}
	for _, e := range list {
		if err := p.sets.Remove(e.set.of(), e.set.name(), []ipset.Marked{{Element: e.Element}}); err != nil {
			return err
		}
	}
	return nil
}
