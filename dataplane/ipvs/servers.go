package ipvs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	mobyipvs "github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// addServer makes a virtual server. A scheduler that this kernel lacks is
// noted, and the next best taken.
func (p *Plane) addServer(id lvs.ServerID, pool *model.Pool) error {
	return p.setServer(id, pool, p.balancer.NewService)
}

func (p *Plane) setServer(id lvs.ServerID, pool *model.Pool, command func(*mobyipvs.Service) error) error {
	for {
		s := p.choose.service(id, pool, len(pool.Draining) > 0 || len(p.orphans[id]) > 0)
		err := command(lvs.ToService(id, s))
		switch {
		case err == nil:
			p.services[id] = s
			return nil
		case errors.Is(err, unix.EEXIST):
			command = p.balancer.UpdateService
		case errors.Is(err, unix.ENOENT) && s.Scheduler != model.RoundRobin && !p.choose.missing[s.Scheduler]:
			p.choose.missing[s.Scheduler] = true
			slog.Warn("IPVS scheduler missing", "scheduler", s.Scheduler, "module", "ip_vs_"+string(s.Scheduler))
		case errors.Is(err, unix.ENOENT) && s.Scheduler == model.RoundRobin:
			return &kernel.MissingError{What: "ip_vs_rr", Since: "2.4", Err: err}
		default:
			return fmt.Errorf("set virtual server %s: %w", id, err)
		}
	}
}

func (p *Plane) removeServer(id lvs.ServerID) error {
	delete(p.services, id)
	delete(p.orphans, id)
	if err := p.balancer.DelService(lvs.ToService(id, lvs.Service{})); err != nil && !lvs.Gone(err) {
		return fmt.Errorf("remove virtual server %s: %w", id, err)
	}
	return nil
}

// putDestination makes or changes a destination, whichever it takes.
func (p *Plane) putDestination(id lvs.ServerID, d lvs.Destination, there bool) error {
	if _, orphan := p.orphans[id][d.Addr]; orphan {
		there = true
		if delete(p.orphans[id], d.Addr); len(p.orphans[id]) == 0 {
			delete(p.orphans, id)
		}
	}
	s, m := lvs.ToService(id, lvs.Service{}), lvs.ToDestination(d)
	commands := []func(*mobyipvs.Service, *mobyipvs.Destination) error{p.balancer.NewDestination, p.balancer.UpdateDestination}
	if there {
		slices.Reverse(commands)
	}
	err := commands[0](s, m)
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
		err = commands[1](s, m)
	}
	if err != nil {
		return fmt.Errorf("put destination %s of virtual server %s: %w", d.Addr, id, err)
	}
	return nil
}

func (p *Plane) removeDestination(id lvs.ServerID, at netip.AddrPort) error {
	err := p.balancer.DelDestination(lvs.ToService(id, lvs.Service{}), lvs.ToDestination(lvs.Destination{Addr: at}))
	if err != nil && !lvs.Gone(err) {
		return fmt.Errorf("remove destination %s of virtual server %s: %w", at, id, err)
	}
	return nil
}
