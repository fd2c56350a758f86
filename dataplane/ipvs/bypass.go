package ipvs

import (
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// IPVS has no destination for new connections while it exchanges the scheduler
// of a virtual server (it waits for RCU readers between the old and the new
// one), so they would be refused. They take a bypass meanwhile: a virtual
// server of a mark, with the same backends, which then stays until its
// connections end.

// Marks of bypass servers have this bit, those of pools don't.
const bypassBit uint32 = 0x00800000

// refresh makes a server choose as its pool says, if it doesn't.
func (p *Plane) refresh(id lvs.ServerID, pool *model.Pool, table *model.Table) error {
	idle := len(pool.Draining) > 0 || len(p.orphans[id]) > 0
	now, want := p.services[id], p.choose.service(id, pool, idle)
	if now == want {
		return nil
	}
	change := func() error { return p.setServer(id, pool, p.balancer.UpdateService) }
	if now.Scheduler == want.Scheduler || id.Mark != 0 || empty(pool) {
		return change()
	}
	f := table.Frontend(id.Key)
	if f == nil {
		return change()
	}
	return p.bypass(f, pool, change)
}

// bypass leads new connections to f past its virtual server while that changes.
func (p *Plane) bypass(f *model.Frontend, pool *model.Pool, change func() error) error {
	p.bypasses++
	ids := map[bool]lvs.ServerID{}
	for o, r := range f.Routes {
		if r.Pool != pool.ID {
			continue // goes another way already
		}
		id, made := ids[r.Masquerade]
		if !made {
			id = lvs.ServerID{Mark: p.bypassMark(r.Masquerade), IPv6: f.Addr.Is6()}
			if err := p.openBypass(id, pool); err != nil {
				return err
			}
			ids[r.Masquerade] = id
		}
		if err := p.mark(f.Key, model.Origin(o), ipset.Mark{Value: id.Mark, Mask: ^uint32(0)}); err != nil {
			return err
		}
	}
	if err := change(); err != nil {
		return err
	}
	marks := state{masquerade: p.options.MasqueradeMark}
	for o, r := range f.Routes {
		if r.Pool == pool.ID {
			if err := p.mark(f.Key, model.Origin(o), marks.mainMark(f, model.Origin(o))); err != nil {
				return err
			}
		}
	}
	for _, id := range ids {
		if err := p.closeBypass(id, pool); err != nil {
			return err
		}
	}
	return nil
}

// bypassMark is the mark of the current bypass: the bits of a number, spread
// around that for masquerading.
func (p *Plane) bypassMark(masquerade bool) uint32 {
	low := p.bypasses & (p.options.MasqueradeMark - 1)
	high := p.bypasses &^ (p.options.MasqueradeMark - 1) << 1
	m := markRange | bypassBit | (low|high)&(bypassBit-1)
	if masquerade {
		m |= p.options.MasqueradeMark
	}
	return m
}

func (p *Plane) openBypass(id lvs.ServerID, pool *model.Pool) error {
	if err := p.addServer(id, pool); err != nil {
		return err
	}
	for _, d := range destinations(pool) {
		if err := p.putDestination(id, d, false); err != nil {
			return err
		}
	}
	return nil
}

// closeBypass lets no more connections in; the reaper takes the server away.
func (p *Plane) closeBypass(id lvs.ServerID, pool *model.Pool) error {
	last := map[netip.AddrPort]time.Time{}
	for _, d := range destinations(pool) {
		if err := p.putDestination(id, lvs.Destination{Addr: d.Addr, Weight: 0}, true); err != nil {
			return err
		}
		last[d.Addr] = time.Time{}
	}
	p.orphans[id] = last
	return nil
}

// mark sets what first packets of an origin to a key are marked with.
func (p *Plane) mark(k model.Key, o model.Origin, m ipset.Mark) error {
	id := setID{originSet(o), k.Addr.Is6()}
	list := []ipset.Marked{{Element: keyElement(k), Mark: m}}
	if m == (ipset.Mark{}) {
		return p.sets.Remove(id.of(), id.name(), list)
	}
	return p.sets.Add(id.of(), id.name(), list)
}
