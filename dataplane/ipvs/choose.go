package ipvs

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// destinations are a pool's backends as IPVS has them, sorted by address.
func destinations(p *model.Pool) []lvs.Destination {
	list := make([]lvs.Destination, 0, len(p.Backends)+len(p.Draining))
	for _, b := range p.Backends {
		list = append(list, lvs.Destination{Addr: b.AddrPort(), Weight: int(b.Weight)})
	}
	for _, b := range p.Draining {
		list = append(list, lvs.Destination{Addr: b.AddrPort(), Weight: 0})
	}
	if len(p.Draining) > 0 {
		lvs.SortDestinations(list)
	}
	return list
}

// schedulers are those that IPVS has and a model can ask for.
var schedulers = []model.Scheduler{
	model.RoundRobin, model.WeightedRoundRobin, model.LeastConnection, model.WeightedLeastConnection,
	model.DestinationHashing, model.SourceHashing, model.ShortestExpectedDelay, model.NeverQueue, model.MaglevHashing,
	model.MaglevPortHashing,
}

// chooser says how virtual servers choose.
type chooser struct {
	preferred model.Scheduler          // for pools that name none; "" is round robin
	missing   map[model.Scheduler]bool // this kernel lacks
}

// service is how a virtual server with this pool chooses. Idle says that it
// has destinations of weight 0.
func (c chooser) service(id lvs.ServerID, p *model.Pool, idle bool) lvs.Service {
	s := lvs.Service{Scheduler: c.scheduler(p)}
	if s.Scheduler == model.MaglevPortHashing {
		s.Scheduler, s.Flags = model.MaglevHashing, lvs.FlagPort
	}
	if p.Affinity > 0 {
		if s.Scheduler == model.DefaultScheduler || id.Mark != 0 {
			s.Scheduler = model.MaglevHashing
		}
		if id.Mark == 0 {
			s.Flags |= lvs.FlagPersistent
			s.Timeout = uint32((p.Affinity + time.Second - 1) / time.Second)
		}
	}
	if s.Scheduler == model.DestinationHashing && idle {
		// dh has no way around a destination that takes no connections.
		s.Scheduler = model.DefaultScheduler
	}
	if s.Scheduler == model.DefaultScheduler || c.missing[s.Scheduler] {
		s.Scheduler, s.Flags = c.plain(p), s.Flags&^lvs.FlagPort
	}
	if s.Scheduler == model.SourceHashing || s.Scheduler == model.MaglevHashing {
		s.Flags |= lvs.FlagFallback
	}
	return s
}

func (c chooser) scheduler(p *model.Pool) model.Scheduler {
	wanted := cmp.Or(p.Scheduler, c.preferred)
	if !slices.Contains(schedulers, wanted) {
		return model.DefaultScheduler
	}
	return wanted
}

// plain is round robin, weighted if weights differ.
func (c chooser) plain(p *model.Pool) model.Scheduler {
	for _, b := range p.Backends {
		if b.Weight != p.Backends[0].Weight && !c.missing[model.WeightedRoundRobin] {
			return model.WeightedRoundRobin
		}
	}
	return model.RoundRobin
}
