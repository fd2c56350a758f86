package ipvs

import (
	"github.com/fairway-net/fairway/internal/lvs"
)

// growServers gives servers their new destinations. Servers of marks are made
// here: nothing goes to them before a set has their mark.
func (p *Plane) growServers(plan *plan) error {
	var list []growth
	for id, sp := range plan.servers {
		if sp.pool != nil && (!sp.add || id.Mark != 0) {
			list = append(list, growth{id, sp})
		}
	}
	return p.grow(list)
}

// newServers makes servers of keys. A server has no destinations for a moment,
// and refuses. Nothing comes to it as a rule, as its address isn't bound yet, or
// another plane translates what comes. But packets to relays of the userspace
// mode pass here, so they take a bypass.
func (p *Plane) newServers(plan *plan) error {
	var list []growth
	for id, sp := range plan.servers {
		if !sp.add || id.Mark != 0 {
			continue
		}
		f := plan.want.Frontend(id.Key)
		if !plan.relayed || f == nil || empty(sp.pool) {
			list = append(list, growth{id, sp})
			continue
		}
		if err := p.bypass(f, sp.pool, func() error { return p.growServer(id, sp) }); err != nil {
			return err
		}
	}
	return p.grow(list)
}

func (p *Plane) growServer(id lvs.ServerID, sp *serverPlan) error {
	if sp.add {
		if err := p.addServer(id, sp.pool); err != nil {
			return err
		}
	}
	for _, d := range sp.DestinationChanges.Add {
		if err := p.putDestination(id, d, false); err != nil {
			return err
		}
	}
	for _, d := range sp.Set {
		if err := p.putDestination(id, d, true); err != nil {
			return err
		}
	}
	return nil
}

// reschedule makes servers choose as their pools say. New connections may need
// a way around them meanwhile, so their marks have to be in force before.
func (p *Plane) reschedule(plan *plan) error {
	for id, sp := range plan.servers {
		if sp.pool != nil && !sp.add {
			if err := p.refresh(id, sp.pool, plan.want); err != nil {
				return err
			}
		}
	}
	return nil
}

// shrinkServers takes away the destinations that left.
func (p *Plane) shrinkServers(plan *plan) error {
	for id, sp := range plan.servers {
		if sp.pool == nil || len(sp.DestinationChanges.Del) == 0 {
			continue
		}
		for _, d := range sp.DestinationChanges.Del {
			if err := p.release(id, sp.pool, d); err != nil {
				return err
			}
		}
		if err := p.refresh(id, sp.pool, plan.want); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) removeServersOf(plan *plan, marks bool) error {
	for id, sp := range plan.servers {
		if sp.del && (id.Mark != 0) == marks {
			if err := p.removeServer(id); err != nil {
				return err
			}
		}
	}
	return nil
}
