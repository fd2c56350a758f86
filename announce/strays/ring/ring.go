package ring

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/announce/lead"
	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Most is how many other nodes a ring has at most.
const Most = 32

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

// Program is that of an interface. It stays when this process ends.
type Program struct {
	*lead.Program
	device *net.Interface
	rings  map[netip.Addr]Ring
}

// Open loads the program for an interface in the network namespace of the calling thread.
// What an earlier process led elsewhere is still led there; see lead.Open.
func Open(device *net.Interface) (*Program, error) {
	program, err := lead.Open(device, placeOf, loadStrays)
	if err != nil {
		return nil, fmt.Errorf("lead packets to the node of their connection: %w", err)
	}
	p := &Program{program, device, map[netip.Addr]Ring{}}
	var key straysAddress
	var r straysRing
	for all := p.Maps[straysMapRings].Iterate(); all.Next(&key, &r); {
		ring := Ring{After: int(r.After)}
		for i := range min(int(r.Count), Most) {
			ring.Nodes = append(ring.Nodes, slices.Clone(r.Macs[i][:6]))
		}
		p.rings[netip.AddrFrom16(key.Bytes).Unmap()] = ring
	}
	return p, nil
}

// IsThere reports whether an earlier process left its program at an interface.
func IsThere(device *net.Interface) bool {
	return tcfilter.FirstAt(placeOf).IsThere(device.Index)
}

// Rings are those of all addresses, also of those that are watched only.
func (p *Program) Rings() map[netip.Addr]Ring { return p.rings }

// Know tells of another node of the link.
func (p *Program) Know(mac net.HardwareAddr) error {
	key, yes := straysMac{}, uint8(1)
	copy(key.Bytes[:6], mac)
	if err := p.Maps[straysMapNodes].Put(key, yes); err != nil {
		return fmt.Errorf("note node with MAC %s: %w", mac, err)
	}
	return nil
}

// Watch has connections to an address noted that begin from now on. Nothing is led elsewhere
// yet.
func (p *Program) Watch(a netip.Addr, most time.Duration) error { return p.Lead(a, Ring{}, most) }

// Forget forgets connections to an address that began here, but for those that are there: the
// client's next one from the same port may be another node's. Those that have just begun may
// not be among what is there yet.
func (p *Program) Forget(a netip.Addr, there map[lead.Flow]bool) error {
	return p.Program.Forget(a, there, lead.JustBegun)
}

// Lead has packets of connections that didn't begin here led through a ring, for as long as
// a time at most.
func (p *Program) Lead(a netip.Addr, to Ring, most time.Duration) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	if len(to.Nodes) > Most {
		to.Nodes = to.Nodes[:Most]
	}
	r := straysRing{Count: uint8(len(to.Nodes)), After: uint8(min(to.After, len(to.Nodes))), Until: uint64(now + most)}
	copy(r.Own[:], p.device.HardwareAddr)
	for i, mac := range to.Nodes {
		copy(r.Macs[i][:], mac)
	}
	key := straysAddress{Bytes: a.As16()}
	var before straysRing
	if err := p.Maps[straysMapRings].Lookup(key, &before); err == nil {
		r.Forwarded, r.NewUntil = before.Forwarded, before.NewUntil
	}
	if before.Count == 0 && r.Count > 0 {
		r.NewUntil = uint64(now + lead.UnseenUDP)
	}
	if err := p.Maps[straysMapRings].Put(key, r); err != nil {
		return fmt.Errorf("lead packets to %s to the nodes of their connections: %w", a, err)
	}
	p.rings[a] = to
	if err := p.Attach(); err != nil {
		return fmt.Errorf("lead packets to %s to the nodes of their connections: %w", a, err)
	}
	return nil
}

// End has no more packets to an address led elsewhere, and returns how many were. With the
// last address the program goes, and what it noted.
func (p *Program) End(a netip.Addr) (packets uint64, err error) {
	key := straysAddress{Bytes: a.As16()}
	var r straysRing
	if err := p.Maps[straysMapRings].Lookup(key, &r); err == nil {
		packets = r.Forwarded
	}
	if err := p.Maps[straysMapRings].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return packets, fmt.Errorf("end leading packets to %s to other nodes: %w", a, err)
	}
	delete(p.rings, a)
	if len(p.rings) > 0 {
		return packets, nil
	}
	return packets, p.Remove()
}
