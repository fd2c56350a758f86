package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/model"
)

// serverID is what IPVS knows a virtual server by: a key, or a packet mark.
type serverID struct {
	key  model.Key // zero if mark is not
	mark uint32
	ipv6 bool
}

func keyServer(k model.Key) serverID { return serverID{key: k, ipv6: k.Addr.Is6()} }

// String spells the server as `ipvsadm -Ln` does.
func (id serverID) String() string {
	switch {
	case id.mark != 0 && id.ipv6:
		return fmt.Sprintf("FWM %d IPv6", id.mark)
	case id.mark != 0:
		return fmt.Sprintf("FWM %d", id.mark)
	}
	return strings.ToUpper(id.key.Proto.String()) + " " + netip.AddrPortFrom(id.key.Addr, id.key.Port).String()
}

func (id serverID) compare(o serverID) int {
	return cmp.Or(id.key.Compare(o.key), cmp.Compare(id.mark, o.mark))
}

// Flags of virtual servers (linux/ip_vs.h). The meaning of the last two depends on
// the scheduler: sh and mh then look for another destination where the hashed
// one takes no connections, and hash the client's port, too.
const (
	flagPersistent uint32 = 0x1
	flagFallback   uint32 = 0x8
	flagPort       uint32 = 0x10
	flagsOurs             = flagPersistent | flagFallback | flagPort
)

// service is how a virtual server chooses.
type service struct {
	scheduler model.Scheduler
	flags     uint32
	timeout   uint32 // seconds of persistence
}

func (s service) text() string {
	text := string(s.scheduler)
	if s.flags&flagPersistent != 0 {
		text += fmt.Sprintf(" persistent %d", s.timeout)
	}
	if s.flags&flagFallback != 0 {
		text += fmt.Sprintf(" (%s-fallback)", s.scheduler)
	}
	if s.flags&flagPort != 0 {
		text += fmt.Sprintf(" (%s-port)", s.scheduler)
	}
	return text
}

// destination is one real server of a virtual server.
type destination struct {
	addr   netip.AddrPort
	weight int // 0 takes no new connections
}

// destinations are a pool's backends as IPVS has them, sorted by address.
func destinations(p *model.Pool) []destination {
	list := make([]destination, 0, len(p.Backends)+len(p.Draining))
	for _, b := range p.Backends {
		list = append(list, destination{b.AddrPort(), int(b.Weight)})
	}
	for _, b := range p.Draining {
		list = append(list, destination{b.AddrPort(), 0})
	}
	if len(p.Draining) > 0 {
		sortDestinations(list)
	}
	return list
}

func sortDestinations(list []destination) {
	slices.SortFunc(list, func(a, b destination) int { return a.addr.Compare(b.addr) })
}

// destinationChanges lead from one list of destinations to another.
type destinationChanges struct{ add, set, del []destination }

// compareDestinations tells the way from one sorted list to another.
func compareDestinations(before, after []destination) (c destinationChanges) {
	for len(before) > 0 && len(after) > 0 {
		switch order := before[0].addr.Compare(after[0].addr); {
		case order < 0:
			c.del, before = append(c.del, before[0]), before[1:]
		case order > 0:
			c.add, after = append(c.add, after[0]), after[1:]
		default:
			if before[0].weight != after[0].weight {
				c.set = append(c.set, after[0])
			}
			before, after = before[1:], after[1:]
		}
	}
	c.add, c.del = append(c.add, after...), append(c.del, before...)
	return c
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
func (c chooser) service(id serverID, p *model.Pool, idle bool) service {
	s := service{scheduler: c.scheduler(p)}
	if s.scheduler == model.MaglevPortHashing {
		s.scheduler, s.flags = model.MaglevHashing, flagPort
	}
	if p.Affinity > 0 {
		if s.scheduler == model.DefaultScheduler || id.mark != 0 {
			s.scheduler = model.MaglevHashing
		}
		if id.mark == 0 {
			s.flags |= flagPersistent
			s.timeout = uint32((p.Affinity + time.Second - 1) / time.Second)
		}
	}
	if s.scheduler == model.DestinationHashing && idle {
		// dh has no way around a destination that takes no connections.
		s.scheduler = model.DefaultScheduler
	}
	if s.scheduler == model.DefaultScheduler || c.missing[s.scheduler] {
		s.scheduler, s.flags = c.plain(p), s.flags&^flagPort
	}
	if s.scheduler == model.SourceHashing || s.scheduler == model.MaglevHashing {
		s.flags |= flagFallback
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
