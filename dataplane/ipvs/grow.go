package ipvs

import (
	"fmt"
	"maps"
	"slices"

	mobyipvs "github.com/moby/ipvs"
	"github.com/vishvananda/netlink/nl"

	"github.com/fairway-net/fairway/internal/netlink/bulk"
)

// ipvsKernel is the kernel's IPVS. What there may be much of goes in bulk.
type ipvsKernel struct {
	*mobyipvs.Handle
	family uint16
	bulk   *bulk.Socket
}

// Do carries commands out and tells by their indices which have failed and why.
func (k *ipvsKernel) Do(commands []serverCommand) (map[int]error, error) {
	messages := make([]*nl.NetlinkRequest, len(commands))
	for i, c := range commands {
		messages[i] = c.request(k.family)
	}
	return k.bulk.Do(messages, nil)
}

// Close gives up the sockets.
func (k *ipvsKernel) Close() {
	k.Handle.Close()
	k.bulk.Close()
}

// growth is what a server is to get.
type growth struct {
	id serverID
	*serverPlan
}

// grow makes servers, where they are new, and gives them their new destinations: all
// in bulk first, as if nothing could be in the way. Servers of which something has
// failed, or that have orphans, are seen to one by one.
func (p *Plane) grow(list []growth) error {
	var commands []serverCommand
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

func (p *Plane) serviceOf(g growth) service {
	return p.choose.service(g.id, g.pool, len(g.pool.Draining) > 0)
}

func (p *Plane) commands(g growth) []serverCommand {
	var list []serverCommand
	if g.add {
		list = append(list, serverCommand{verb: newServer, id: g.id, service: p.serviceOf(g)})
	}
	for _, d := range g.destinationChanges.add {
		list = append(list, serverCommand{verb: newDestination, id: g.id, destination: d})
	}
	for _, d := range g.set {
		list = append(list, serverCommand{verb: setDestination, id: g.id, destination: d})
	}
	return list
}
