package lvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// ServerID is what IPVS knows a virtual server by: a key, or a packet mark.
type ServerID struct {
	Key  model.Key // zero if mark is not
	Mark uint32
	IPv6 bool
}

// KeyServer is the virtual server of a key.
func KeyServer(k model.Key) ServerID { return ServerID{Key: k, IPv6: k.Addr.Is6()} }

// String spells the server as `ipvsadm -Ln` does.
func (id ServerID) String() string {
	switch {
	case id.Mark != 0 && id.IPv6:
		return fmt.Sprintf("FWM %d IPv6", id.Mark)
	case id.Mark != 0:
		return fmt.Sprintf("FWM %d", id.Mark)
	}
	return strings.ToUpper(id.Key.Proto.String()) + " " + netip.AddrPortFrom(id.Key.Addr, id.Key.Port).String()
}

// Compare sorts servers.
func (id ServerID) Compare(o ServerID) int {
	return cmp.Or(id.Key.Compare(o.Key), cmp.Compare(id.Mark, o.Mark))
}

// Flags of virtual servers (linux/ip_vs.h). The meaning of the last two depends on
// the scheduler: sh and mh then look for another destination where the hashed
// one takes no connections, and hash the client's port, too.
const (
	FlagPersistent uint32 = 0x1
	FlagFallback   uint32 = 0x8
	FlagPort       uint32 = 0x10
	flagsOurs             = FlagPersistent | FlagFallback | FlagPort
)

// Service is how a virtual server chooses.
type Service struct {
	Scheduler model.Scheduler
	Flags     uint32
	Timeout   uint32 // seconds of persistence
}

// Text spells a server's way of choosing for people.
func (s Service) Text() string {
	text := string(s.Scheduler)
	if s.Flags&FlagPersistent != 0 {
		text += fmt.Sprintf(" persistent %d", s.Timeout)
	}
	if s.Flags&FlagFallback != 0 {
		text += fmt.Sprintf(" (%s-fallback)", s.Scheduler)
	}
	if s.Flags&FlagPort != 0 {
		text += fmt.Sprintf(" (%s-port)", s.Scheduler)
	}
	return text
}

// Destination is one real server of a virtual server.
type Destination struct {
	Addr   netip.AddrPort
	Weight int // 0 takes no new connections
}

// SortDestinations sorts by address.
func SortDestinations(list []Destination) {
	slices.SortFunc(list, func(a, b Destination) int { return a.Addr.Compare(b.Addr) })
}

// DestinationChanges lead from one list of destinations to another.
type DestinationChanges struct{ Add, Set, Del []Destination }

// CompareDestinations tells the way from one sorted list to another.
func CompareDestinations(before, after []Destination) (c DestinationChanges) {
	for len(before) > 0 && len(after) > 0 {
		switch order := before[0].Addr.Compare(after[0].Addr); {
		case order < 0:
			c.Del, before = append(c.Del, before[0]), before[1:]
		case order > 0:
			c.Add, after = append(c.Add, after[0]), after[1:]
		default:
			if before[0].Weight != after[0].Weight {
				c.Set = append(c.Set, after[0])
			}
			before, after = before[1:], after[1:]
		}
	}
	c.Add, c.Del = append(c.Add, after...), append(c.Del, before...)
	return c
}
