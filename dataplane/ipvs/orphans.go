package ipvs

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// orphans are destinations of weight 0 that the table does not list any more.
// They stay until they have no connections, or until their deadline (the zero
// time is none).
type orphans map[lvs.ServerID]map[netip.AddrPort]time.Time

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
func (p *Plane) release(id lvs.ServerID, pool *model.Pool, d lvs.Destination) error {
	keep, deadline := ending(pool, time.Now())
	if !keep {
		if delete(p.orphans[id], d.Addr); len(p.orphans[id]) == 0 {
			delete(p.orphans, id)
		}
		return p.removeDestination(id, d.Addr)
	}
	if since, already := p.orphans[id][d.Addr]; already {
		deadline = since
	} else if d.Weight == 0 {
		// An earlier process has let go of it.
		if since := p.deadline.take(id, d.Addr); !since.IsZero() && (pool == nil || !deadline.IsZero()) {
			deadline = since
		}
	} else {
		if err := p.putDestination(id, lvs.Destination{Addr: d.Addr, Weight: 0}, true); err != nil {
			return err
		}
	}
	if p.orphans[id] == nil {
		p.orphans[id] = map[netip.AddrPort]time.Time{}
	}
	p.orphans[id][d.Addr] = deadline
	return nil
}

// reapSoon sees to it that orphans are looked at as long as there are any.
func (p *Plane) reapSoon() {
	if p.reaping || len(p.orphans) == 0 {
		return
	}
	p.reaping = true
	p.background(func() {
		for {
			time.Sleep(reapEvery)
			if !p.reap(time.Now()) {
				return
			}
		}
	})
}

// reap ends what has come to its end and reports whether anything is left.
func (p *Plane) reap(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.orphans {
		if err := p.reapServer(id, now); err != nil {
			slog.Warn("IPVS destinations could not be removed at their deadline", "error", err)
		}
	}
	p.saveDeadlines()
	p.reaping = len(p.orphans) > 0
	return p.reaping
}

// saveDeadlines keeps the orphans' deadlines for the next process. Without it they begin
// anew there, which is no reason to stop serving.
func (p *Plane) saveDeadlines() {
	if err := p.deadline.save(p.orphans); err != nil {
		slog.Warn("the deadlines of IPVS destinations could not be saved; they begin anew when the agent restarts", "error", err)
	}
}

func (p *Plane) reapServer(id lvs.ServerID, now time.Time) error {
	if p.state == nil {
		return nil // the next Apply looks at everything
	}
	list, loads, err := lvs.ReadDestinations(p.balancer, lvs.ToService(id, lvs.Service{}))
	if err != nil && !lvs.Gone(err) {
		return fmt.Errorf("list destinations of virtual server %s: %w", id, err)
	}
	there := map[netip.AddrPort]bool{}
	for _, d := range list {
		there[d.Addr] = true
	}
	retired := p.retired(id)
	for at, deadline := range p.orphans[id] {
		connections := loads[at].Total
		if retired {
			connections = drainingConns(id, p.state.table.Settings, loads[at])
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
		return p.deleteDrained(id)
	}
	return p.refresh(id, p.state.table.Pool(p.state.servers[id].pool), p.state.table)
}
