package ipvs

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/model"
)

// orphans are destinations of weight 0 that the table does not list any more.
// They stay until they have no connections, or until their deadline (the zero
// time is none).
type orphans map[serverID]map[netip.AddrPort]time.Time

// reapEvery is how often orphans are looked at: one message for each server
// that has some.
const reapEvery = 2 * time.Second

// ending says how long connections may outlive their backend: not at all, to a
// deadline, or (the zero time) as long as they like. An unknown pool's may:
// its table was an earlier process's.
func ending(pool *model.Pool, now time.Time) (keep bool, deadline time.Time) {
	switch {
	case pool == nil:
		return true, deadline
	case pool.ID.Proto == model.UDP, pool.Orphans == model.OrphansReset,
		pool.Orphans == model.OrphansDeadline && pool.OrphanDeadline <= 0:
		return false, deadline
	case pool.Orphans == model.OrphansDeadline:
		return true, now.Add(pool.OrphanDeadline)
	}
	return true, deadline
}

// release lets go of a destination whose backend is gone for good.
func (p *Plane) release(id serverID, pool *model.Pool, d destination) error {
	keep, deadline := ending(pool, time.Now())
	if !keep {
		if delete(p.orphans[id], d.addr); len(p.orphans[id]) == 0 {
			delete(p.orphans, id)
		}
		return p.removeDestination(id, d.addr)
	}
	if since, already := p.orphans[id][d.addr]; already {
		deadline = since
	} else if d.weight != 0 {
		if err := p.putDestination(id, destination{d.addr, 0}, true); err != nil {
			return err
		}
	}
	if p.orphans[id] == nil {
		p.orphans[id] = map[netip.AddrPort]time.Time{}
	}
	p.orphans[id][d.addr] = deadline
	return nil
}

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
		if !sp.del || !keep || id.key.Proto == model.UDP {
			continue
		}
		list, loads, err := readDestinations(p.balancer, toService(id, service{}))
		if gone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list destinations of virtual server %s: %w", id, err)
		}
		quiet := func(d destination) bool { return lingering(id, plan.want.Settings, loads[d.addr]) == 0 }
		if !slices.ContainsFunc(list, func(d destination) bool { return !quiet(d) }) {
			continue
		}
		for _, d := range list {
			if quiet(d) {
				err = p.removeDestination(id, d.addr)
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

// lingering is how many connections keep a server that is to go. Where the
// model wants its address refused, all of them; where packets should pass, as
// if there were no server, only those that something could still be said over.
func lingering(id serverID, settings *model.Settings, l load) int {
	if id.mark == 0 && reserved(settings, id.key.Addr) {
		return l.total
	}
	return l.active
}

// refusals are the entries that keep new connections from a retired server.
func refusals(id serverID) []entry {
	var list []entry
	for o := range model.Origin(model.NumOrigins) {
		list = append(list, entry{setID{originSet(o), id.ipv6}, keyElement(id.key)})
	}
	return list
}

func addressEntry(a netip.Addr) entry { return entry{setID{setAddresses, a.Is6()}, element{addr: a}} }

// refuse keeps a retired server's address, and new connections from it.
func (p *plan) refuse(id serverID) {
	if id.mark != 0 {
		return
	}
	verdict := markRefuse
	if !reserved(p.want.Settings, id.key.Addr) && !isNodeAddr(p.want.Settings, id.key.Addr) {
		verdict = markDrop // as what comes to other ports of an external address
	}
	for _, e := range refusals(id) {
		delete(p.removes[e.set], e.element)
		p.put(e, mark{verdict, ^uint32(0)})
	}
	address := addressEntry(id.key.Addr)
	delete(p.removes[address.set], address.element)
	delete(p.unbind, id.key.Addr)
}

// restore lets new connections to a server that was retired.
func (p *plan) restore(id serverID) {
	for _, e := range refusals(id) {
		if _, marked := p.puts[e.set][e.element]; !marked && id.mark == 0 {
			p.remove(e, mark{})
		}
	}
}

// retired reports whether the server is there only for the connections it has.
func (p *Plane) retired(id serverID) bool {
	if p.state == nil {
		return false
	}
	_, serves := p.state.servers[id]
	return !serves && len(p.orphans[id]) > 0
}

// bury takes a retired server away whose connections have ended, and what kept
// new ones from it.
func (p *Plane) bury(id serverID) error {
	if err := p.removeServer(id); err != nil || id.mark != 0 {
		return err
	}
	a := id.key.Addr
	needed := p.state.shared[addressEntry(a)] > 0
	for other := range p.orphans {
		needed = needed || other.key.Addr == a
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
		if err := p.sets.remove(e.set, e.set.name(), []markedElement{{element: e.element}}); err != nil {
			return err
		}
	}
	return nil
}

// reapSoon sees to it that orphans are looked at as long as there are any.
func (p *Plane) reapSoon() {
	if p.reaping || len(p.orphans) == 0 {
		return
	}
	p.reaping = true
	go func() {
		for {
			time.Sleep(reapEvery)
			if !p.reap(time.Now()) {
				return
			}
		}
	}()
}

// reap ends what has come to its end and reports whether anything is left.
func (p *Plane) reap(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.orphans {
		if err := p.reapServer(id, now); err != nil {
			slog.Warn("ipvs: reap destinations", "error", err)
		}
	}
	p.reaping = len(p.orphans) > 0
	return p.reaping
}

func (p *Plane) reapServer(id serverID, now time.Time) error {
	if p.state == nil {
		return nil // the next Apply looks at everything
	}
	list, loads, err := readDestinations(p.balancer, toService(id, service{}))
	if err != nil && !gone(err) {
		return fmt.Errorf("list destinations of virtual server %s: %w", id, err)
	}
	there := map[netip.AddrPort]bool{}
	for _, d := range list {
		there[d.addr] = true
	}
	retired := p.retired(id)
	for at, deadline := range p.orphans[id] {
		connections := loads[at].total
		if retired {
			connections = lingering(id, p.state.table.Settings, loads[at])
		}
		if there[at] && connections > 0 && (deadline.IsZero() || now.Before(deadline)) {
			continue
		}
		if err := p.removeDestination(id, at); err != nil {
			return err
		}
		delete(p.orphans[id], at)
	}
	if len(p.orphans[id]) > 0 {
		return nil
	}
	delete(p.orphans, id)
	if retired {
		return p.bury(id)
	}
	return p.refresh(id, p.state.table.Pool(p.state.servers[id].pool), p.state.table)
}
