package steering

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Most is how many other nodes a ring has at most.
const Most = 32

const (
	// unseenUDP is for how long UDP flows are taken for another node's when they show up: they
	// have no beginning that could be seen.
	unseenUDP = 2 * time.Second
	// justBegun is how long connections that began here may not be among those that are listed.
	justBegun = 5 * time.Second
	// crowdedAt is how many connections may begin before the agent is to look which are over. There
	// is room for four times as many; when that is used up, nothing is led any more.
	crowdedAt = 1 << 16
)

// added is where the program counts the connections that have begun (bpf/flow.h).
const added = uint32(0)

// Ring are the other nodes that have connections of an address, in the order in which they
// are asked. After is the first one that comes after this node.
type Ring struct {
	Nodes []net.HardwareAddr
	After int
}

// Equal reports whether two rings are the same.
func (r Ring) Equal(o Ring) bool {
	return r.After == o.After && slices.EqualFunc(r.Nodes, o.Nodes, func(a, b net.HardwareAddr) bool { return slices.Equal(a, b) })
}

// Program is what a kind has led at an interface. It goes on when this process ends.
type Program struct {
	site *site
	kind Kind
}

// Rings are those of all addresses, also of those that are watched only.
func (p *Program) Rings() map[netip.Addr]Ring {
	p.site.mu.Lock()
	defer p.site.mu.Unlock()
	return maps.Clone(p.site.rings[p.kind])
}

// Ring is that of an address.
func (p *Program) Ring(a netip.Addr) (Ring, bool) {
	p.site.mu.Lock()
	defer p.site.mu.Unlock()
	r, ok := p.site.rings[p.kind][a]
	return r, ok
}

// Know tells of another node of the link.
func (p *Program) Know(mac net.HardwareAddr) error {
	s, key := p.site, [6]byte(mac)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[key] {
		return nil
	}
	if s.loaded != nil {
		if err := s.putNode(key); err != nil {
			return err
		}
	}
	s.nodes[key] = true
	return nil
}

// Watch has connections to an address noted that begin from now on. Nothing is led elsewhere
// yet.
func (p *Program) Watch(a netip.Addr, most time.Duration) error { return p.Lead(a, Ring{}, most) }

// Lead has packets of connections that didn't begin here led through a ring, for as long as
// a time at most.
func (p *Program) Lead(a netip.Addr, to Ring, most time.Duration) error {
	p.site.mu.Lock()
	defer p.site.mu.Unlock()
	if err := p.lead(a, to, most); err != nil {
		return fmt.Errorf("lead packets to %s to the nodes of their connections: %w", a, err)
	}
	return nil
}

func (p *Program) lead(a netip.Addr, to Ring, most time.Duration) error {
	s := p.site
	if err := s.load(); err != nil {
		return err
	}
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	to.Nodes = to.Nodes[:min(len(to.Nodes), Most)]
	r := steeringRing{Count: uint8(len(to.Nodes)), After: uint8(min(to.After, len(to.Nodes))), Until: uint64(now + most)}
	copy(r.Own[:], s.device.HardwareAddr)
	for i, mac := range to.Nodes {
		copy(r.Macs[i][:], mac)
	}
	key := ringKey(p.kind, a)
	var before steeringRing
	if err := s.loaded.Maps[steeringMapRings].Lookup(key, &before); err == nil {
		r.Forwarded, r.NewUntil = before.Forwarded, before.NewUntil
	}
	if r.Count > 0 && (before.Count == 0 || p.kind == Handoff) { // another former owner has flows of its own
		r.NewUntil = uint64(now + unseenUDP)
	}
	if err := s.loaded.Maps[steeringMapRings].Put(key, r); err != nil {
		return err
	}
	s.rings[p.kind][a] = to
	return nil
}

func ringKey(kind Kind, a netip.Addr) (k steeringKey) {
	k.To.Bytes, k.Kind = a.As16(), uint32(kind)
	return k
}

// End has no more packets to an address led elsewhere, and returns how many were. With the
// last address the program goes, and what it noted.
func (p *Program) End(a netip.Addr) (packets uint64, err error) {
	p.site.mu.Lock()
	defer p.site.mu.Unlock()
	return p.site.end(p.kind, a)
}

func (s *site) end(kind Kind, a netip.Addr) (packets uint64, err error) {
	if s.loaded == nil {
		return 0, nil
	}
	key := ringKey(kind, a)
	var r steeringRing
	if err := s.loaded.Maps[steeringMapRings].Lookup(key, &r); err == nil {
		packets = r.Forwarded
	}
	if err := s.loaded.Maps[steeringMapRings].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return packets, fmt.Errorf("end leading packets to %s to other nodes: %w", a, err)
	}
	delete(s.rings[kind], a)
	for _, left := range s.rings {
		if len(left) > 0 {
			return packets, nil
		}
	}
	return packets, s.unload()
}

// Note notes connections to an address that began here.
func (p *Program) Note(a netip.Addr, flows map[Flow]bool) error {
	if err := p.site.note(a, flows); err != nil {
		return fmt.Errorf("note connections of %s that began here: %w", a, err)
	}
	return nil
}

func (s *site) note(a netip.Addr, flows map[Flow]bool) error {
	begun, err := s.begun()
	if err != nil {
		return err
	}
	defer begun.Close()
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	for f := range flows {
		if err := begun.Put(keyOf(f, a), uint64(now)); err != nil {
			return err
		}
	}
	return nil
}

// begun opens the map of connections that began here once more. With many, work on it takes long:
// the lock isn't held meanwhile.
func (s *site) begun() (*ebpf.Map, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	return s.loaded.Maps[steeringMapBegun].Clone()
}

// IsCrowded reports whether so many connections have begun that those are to be forgotten that are
// over.
func (p *Program) IsCrowded() bool {
	p.site.mu.Lock()
	defer p.site.mu.Unlock()
	var n uint64
	return p.site.loaded != nil && p.site.loaded.Maps[steeringMapFullness].Lookup(added, &n) == nil && n >= crowdedAt
}

// Forget forgets connections to addresses that began here, but for those that are there: the
// client's next one from the same port may be another node's. Those that have just begun may
// not be among what is there yet.
func (p *Program) Forget(there map[netip.Addr]map[Flow]bool) error {
	if err := p.site.forget(there, justBegun); err != nil {
		return fmt.Errorf("forget connections that are over: %w", err)
	}
	return nil
}

func (s *site) forget(there map[netip.Addr]map[Flow]bool, ago time.Duration) error {
	begun, err := s.begun()
	if err != nil {
		return err
	}
	defer begun.Close()
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	var k flowKey
	var since uint64
	var gone []flowKey
	left := uint64(0)
	for all := begun.Iterate(); all.Next(&k, &since); left++ {
		f, to := k.flow()
		if live, ok := there[to]; ok && !live[f] && time.Duration(since) < now-ago {
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		if err := begun.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return s.count((left - uint64(len(gone))) / 2)
}

// count says how many connections have begun. Those that stay don't make it crowded, by half: they
// would be looked at all the time.
func (s *site) count(n uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded == nil {
		return nil
	}
	return s.loaded.Maps[steeringMapFullness].Put(added, n)
}

// Close leaves what is led to the next process.
func (p *Program) Close() { p.site.all.close(p.site, p.kind) }

// Detach ends all of it.
func (p *Program) Detach() error {
	err := p.site.endAll(p.kind)
	p.Close()
	return err
}
