package ring

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Most is how many other nodes a ring has at most.
const Most = 32

// unseenUDP is for how long UDP flows are taken for another node's when they show up: they
// have no beginning that could be seen.
const unseenUDP = 2 * time.Second

// Flow is a connection of a client.
type Flow struct {
	Client netip.AddrPort
	Port   uint16
	Proto  uint8
}

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
	device *net.Interface
	place  tcfilter.First
	maps   *ebpf.Collection
	rings  map[netip.Addr]Ring
	there  bool
}

// Open loads the program for an interface in the network namespace of the calling thread.
// What an earlier process led elsewhere is still led there; otherwise nothing is attached
// yet. It takes CAP_BPF, CAP_NET_ADMIN, and CAP_SYS_ADMIN to find the program again, and
// Linux 5.10.
func Open(device *net.Interface) (*Program, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	n, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	p := &Program{device: device, place: placeOf(n, device.Index), rings: map[netip.Addr]Ring{}}
	if err := p.load(); err != nil {
		n.Close()
		return nil, fmt.Errorf("load the program that leads packets to the node of their connection: %w", err)
	}
	return p, nil
}

// IsThere reports whether an earlier process left its program at an interface.
func IsThere(device *net.Interface) bool {
	return tcfilter.FirstAt(placeOf).IsThere(device.Index)
}

// load puts this version's program in the place of an earlier one's, with its maps.
func (p *Program) load() error {
	spec, err := loadStrays()
	if err != nil {
		return err
	}
	earlier, _, err := p.place.Open()
	if err != nil {
		return err
	}
	p.maps, err = tcfilter.LoadSuccessor(spec, earlier)
	if earlier != nil {
		err = errors.Join(err, earlier.Close())
	}
	if err != nil || earlier == nil {
		return err
	}
	if err := p.attach(); err != nil {
		p.maps.Close()
		return err
	}
	var key straysAddress
	var r straysRing
	for all := p.maps.Maps[straysMapRings].Iterate(); all.Next(&key, &r); {
		ring := Ring{After: int(r.After)}
		for i := range min(int(r.Count), Most) {
			ring.Nodes = append(ring.Nodes, slices.Clone(r.Macs[i][:6]))
		}
		p.rings[netip.AddrFrom16(key.Bytes).Unmap()] = ring
	}
	return nil
}

func (p *Program) attach() error {
	if err := p.place.Put(p.maps.Programs[straysProgStrays]); err != nil {
		return err
	}
	p.there = true
	return nil
}

// Rings are those of all addresses, also of those that are watched only.
func (p *Program) Rings() map[netip.Addr]Ring { return p.rings }

// Know tells of another node of the link.
func (p *Program) Know(mac net.HardwareAddr) error {
	key, yes := straysMac{}, uint8(1)
	copy(key.Bytes[:6], mac)
	if err := p.maps.Maps[straysMapNodes].Put(key, yes); err != nil {
		return fmt.Errorf("note node with MAC %s: %w", mac, err)
	}
	return nil
}

// Watch has connections to an address noted that begin from now on. Nothing is led elsewhere
// yet.
func (p *Program) Watch(a netip.Addr, most time.Duration) error { return p.Lead(a, Ring{}, most) }

// Note notes connections to an address that began here before.
func (p *Program) Note(a netip.Addr, begun []Flow) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	for _, b := range begun {
		key := straysFlow{From: straysAddress{Bytes: b.Client.Addr().As16()}, To: straysAddress{Bytes: a.As16()}, Proto: uint32(b.Proto)}
		key.Sport, key.Dport = tcfilter.NetworkOrder(b.Client.Port()), tcfilter.NetworkOrder(b.Port)
		if err := p.maps.Maps[straysMapBegun].Put(key, uint64(now)); err != nil {
			return fmt.Errorf("tell connections of %s that began here: %w", a, err)
		}
	}
	return nil
}

// Forget forgets connections to an address that began here, but for those that are there: the
// client's next one from the same port may be another node's. Those that have just begun may
// not be among what is there yet.
func (p *Program) Forget(a netip.Addr, there map[Flow]bool) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	const justBegun = 5 * time.Second
	var key straysFlow
	var since uint64
	var gone []straysFlow
	begun := p.maps.Maps[straysMapBegun]
	for all := begun.Iterate(); all.Next(&key, &since); {
		f := Flow{
			Client: netip.AddrPortFrom(netip.AddrFrom16(key.From.Bytes).Unmap(), tcfilter.NetworkOrder(key.Sport)),
			Port:   tcfilter.NetworkOrder(key.Dport), Proto: uint8(key.Proto),
		}
		if netip.AddrFrom16(key.To.Bytes).Unmap() == a && !there[f] && time.Duration(since) < now-justBegun {
			gone = append(gone, key)
		}
	}
	for _, key := range gone {
		if err := begun.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget a connection of %s: %w", a, err)
		}
	}
	return nil
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
	if err := p.maps.Maps[straysMapRings].Lookup(key, &before); err == nil {
		r.Forwarded, r.NewUntil = before.Forwarded, before.NewUntil
	}
	if before.Count == 0 && r.Count > 0 {
		r.NewUntil = uint64(now + unseenUDP)
	}
	if err := p.maps.Maps[straysMapRings].Put(key, r); err != nil {
		return fmt.Errorf("lead packets to %s to the nodes of their connections: %w", a, err)
	}
	p.rings[a] = to
	if p.there {
		return nil
	}
	if err := p.attach(); err != nil {
		return fmt.Errorf("lead packets to %s to the nodes of their connections: %w", a, err)
	}
	return nil
}

// End has no more packets to an address led elsewhere, and returns how many were. With the
// last address the program goes, and what it noted.
func (p *Program) End(a netip.Addr) (packets uint64, err error) {
	key := straysAddress{Bytes: a.As16()}
	var r straysRing
	if err := p.maps.Maps[straysMapRings].Lookup(key, &r); err == nil {
		packets = r.Forwarded
	}
	if err := p.maps.Maps[straysMapRings].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return packets, fmt.Errorf("end leading packets to %s to other nodes: %w", a, err)
	}
	delete(p.rings, a)
	if len(p.rings) > 0 || !p.there {
		return packets, nil
	}
	p.there = false
	_, err = p.place.Remove()
	return packets, err
}

// Close leaves the program where it is, if there is something to lead.
func (p *Program) Close() error {
	p.maps.Close()
	p.place.Netlink.Close()
	return nil
}

// Detach ends all of it.
func (p *Program) Detach() error {
	_, err := p.place.Remove()
	return errors.Join(err, p.Close())
}
