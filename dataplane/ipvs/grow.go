package ipvs

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fairway-net/fairway/internal/lvs"
)

// growth is what a server is to get.
type growth struct {
	id lvs.ServerID
	*serverPlan
}

// grow makes servers, where they are new, and gives them their new destinations: all
// in bulk first, as if nothing could be in the way. Servers of which something has
// failed, or that have orphans, are seen to one by one.
func (p *Plane) grow(list []growth) error {
	var commands []lvs.ServerCommand
	var of []int // which server a command is about
	alone := map[int]bool{}
	for i, g := range list {
		if len(p.orphans[g.id]) > 0 {
			alone[i] = true
			continue
		}
		commands = append(commands, p.commands(g)...)
		for len(of) < len(commands) {
			of = append(of, i)
		}
	}
	failed, err := p.balancer.Do(commands)
	if err != nil {
		return fmt.Errorf("set virtual servers: %w", err)
	}
	for n := range failed {
		alone[of[n]] = true
	}
	for i, g := range list {
		if g.add && !alone[i] {
			p.services[g.id] = p.serviceOf(g)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(alone)) {
		if err := p.growServer(list[i].id, list[i].serverPlan); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) serviceOf(g growth) lvs.Service {
	return p.choose.service(g.id, g.pool, len(g.pool.Draining) > 0)
}

func (p *Plane) commands(g growth) []lvs.ServerCommand {
	var list []lvs.ServerCommand
	if g.add {
		list = append(list, lvs.ServerCommand{Verb: lvs.NewServer, ID: g.id, Service: p.serviceOf(g)})
	}
	for _, d := range g.DestinationChanges.Add {
		list = append(list, lvs.ServerCommand{Verb: lvs.NewDestination, ID: g.id, Destination: d})
	}
	for _, d := range g.Set {
		list = append(list, lvs.ServerCommand{Verb: lvs.SetDestination, ID: g.id, Destination: d})
	}
	return list
}
