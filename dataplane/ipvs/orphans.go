package ipvs

import (
	"fmt"
	"log/slog"
	"net/netip"
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

// release lets go of a destination whose backend is gone for good.
func (p *Plane) release(id serverID, pool *model.Pool, d destination) error {
	var deadline time.Time
	switch {
	case pool.ID.Proto == model.UDP, pool.Orphans == model.OrphansReset,
		pool.Orphans == model.OrphansDeadline && pool.OrphanDeadline <= 0:
		return p.removeDestination(id, d.addr)
	case pool.Orphans == model.OrphansDeadline:
		deadline = time.Now().Add(pool.OrphanDeadline)
	}
	if d.weight != 0 {
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
	list, connections, err := readDestinations(p.balancer, toService(id, service{}))
	if err != nil && !gone(err) {
		return fmt.Errorf("list destinations of virtual server %s: %w", id, err)
	}
	there := map[netip.AddrPort]bool{}
	for _, d := range list {
		there[d.addr] = true
	}
	for at, deadline := range p.orphans[id] {
		late := !deadline.IsZero() && !now.Before(deadline)
		if there[at] && connections[at] > 0 && !late {
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
	if p.state == nil {
		return nil
	}
	if use, ok := p.state.servers[id]; ok {
		return p.refresh(id, p.state.table.Pool(use.pool))
	}
	return nil
}
