package steering

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Kind is why packets are led elsewhere.
type Kind uint32

// The same as in bpf/steering.c.
const (
	Handoff Kind = iota // to the former owner of an address
	Routers             // routers choose among nodes
	kinds
)

const (
	filterPriority = 0xf9d // before those that answer ARP, and those of ebpf mode
	filterName     = "fairway-steering"
	work           = "packets led to the node of their connection"
)

func placeOf(h *netlink.Handle, index int) tcfilter.First {
	return tcfilter.First{
		Place:   tcfilter.Place{Netlink: h, Index: index, Side: tcfilter.Ingress, Priority: filterPriority, Prefix: filterName},
		Program: steeringProgSteering,
	}
}

// Interfaces are those of a network namespace, by index. Both kinds share the program of one.
type Interfaces struct {
	mu     sync.Mutex
	used   map[int]*site
	opened [kinds]bool // of which kind all are open
}

// site is an interface, with the program that leads packets there.
type site struct {
	all    *Interfaces
	device *net.Interface
	place  tcfilter.First

	mu     sync.Mutex
	users  [kinds]int
	loaded *ebpf.Collection // nil while nothing is led
	rings  [kinds]map[netip.Addr]Ring
	nodes  map[[6]byte]bool
}

// NewInterfaces returns interfaces of which none is open.
func NewInterfaces() *Interfaces { return &Interfaces{used: map[int]*site{}} }

// Open has packets of a kind led at an interface in the network namespace of the calling thread.
// What an earlier process led elsewhere is still led there; otherwise the program is loaded when
// there is something to lead. That takes CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and Linux 5.10.
func (i *Interfaces) Open(device *net.Interface, kind Kind) (*Program, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.used[device.Index]
	if s == nil {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("open netlink socket: %w", err)
		}
		s = &site{all: i, device: device, place: placeOf(h, device.Index), nodes: map[[6]byte]bool{}}
		s.forgetRings()
		if there, err := s.place.IsThere(); there && err == nil {
			if err := s.load(); err != nil {
				h.Close()
				return nil, err
			}
		}
		i.used[device.Index] = s
	}
	s.users[kind]++
	return &Program{s, kind}, nil
}

// close ends the use of an interface by a kind.
func (i *Interfaces) close(s *site, kind Kind) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.users[kind]--; s.users != [kinds]int{} {
		return
	}
	delete(i.used, s.device.Index)
	if s.loaded != nil {
		s.loaded.Close()
	}
	s.place.Netlink.Close()
}

// Sweep says that all interfaces of a kind are open. When those of both are, what an earlier
// process led elsewhere on others is no longer.
func (i *Interfaces) Sweep(kind Kind) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.opened[kind] = true
	if i.opened != [kinds]bool{true, true} {
		return nil
	}
	_, err := Sweep(func(index int) bool { return i.used[index] != nil })
	errs := []error{err}
	for _, s := range i.used {
		for k, users := range s.users {
			if users == 0 {
				errs = append(errs, s.endAll(Kind(k)))
			}
		}
	}
	return errors.Join(errs...)
}

// load loads the program and attaches it. Where an earlier process left one, it goes on in its
// place, with its maps.
func (s *site) load() error {
	if s.loaded != nil {
		return nil
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	spec, err := loadSteering()
	if err != nil {
		return err
	}
	earlier, err := s.place.Open()
	if err != nil {
		return err
	}
	loaded, err := s.place.LoadSuccessor(spec, earlier)
	if earlier != nil {
		err = errors.Join(err, earlier.Close())
	}
	if err != nil {
		return fmt.Errorf("load the program that leads packets to the node of their connection: %w", err)
	}
	s.loaded = loaded
	for mac := range s.nodes {
		err = errors.Join(err, s.putNode(mac))
	}
	if err = errors.Join(err, s.place.Put(loaded)); err != nil {
		s.loaded = nil
		loaded.Close()
		return err
	}
	s.readRings()
	return nil
}

func (s *site) forgetRings() {
	for kind := range s.rings {
		s.rings[kind] = map[netip.Addr]Ring{}
	}
}

func (s *site) readRings() {
	s.forgetRings()
	var k steeringKey
	var r steeringRing
	for all := s.loaded.Maps[steeringMapRings].Iterate(); all.Next(&k, &r); {
		ring := Ring{After: int(r.After)}
		for i := range min(int(r.Count), Most) {
			ring.Nodes = append(ring.Nodes, slices.Clone(r.Macs[i][:6]))
		}
		if k.Kind < uint32(kinds) {
			s.rings[k.Kind][netip.AddrFrom16(k.To.Bytes).Unmap()] = ring
		}
	}
}

// unload takes the program away, with what it noted: the next connections at another node may have
// the same clients and ports.
func (s *site) unload() error {
	if s.loaded == nil {
		return nil
	}
	_, err := s.place.Remove()
	s.loaded.Close()
	s.loaded = nil
	return err
}

func (s *site) putNode(mac [6]byte) error {
	key, yes := steeringMac{}, uint8(1)
	copy(key.Bytes[:6], mac[:])
	if err := s.loaded.Maps[steeringMapNodes].Put(key, yes); err != nil {
		return fmt.Errorf("note node with MAC %s: %w", net.HardwareAddr(mac[:]), err)
	}
	return nil
}

// endAll ends leading packets of a kind.
func (s *site) endAll(kind Kind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for a := range s.rings[kind] {
		_, err := s.end(kind, a)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// earlier are the places of programs that version 0.1.0 had for a kind each.
var earlier = []tcfilter.FirstAt{earlierPlace("handoff", 0xf9f), earlierPlace("strays", 0xf9e)}

func earlierPlace(program string, priority uint16) tcfilter.FirstAt {
	return func(h *netlink.Handle, index int) tcfilter.First {
		place := placeOf(h, index)
		place.Program, place.Priority, place.Prefix = program, priority, "fairway-"+program
		return place
	}
}

// Sweep ends leading packets to other nodes on all interfaces but some, given by index, and names
// those where a program was. It looks at the network namespace of the calling thread. Programs of
// an earlier version go from all.
func Sweep(stay func(index int) bool) ([]string, error) {
	list, err := tcfilter.FirstAt(placeOf).Sweep(work, stay)
	for _, at := range earlier {
		more, ofThese := at.Sweep(work, func(int) bool { return false })
		list, err = append(list, more...), errors.Join(err, ofThese)
	}
	return list, err
}

// Leftovers names the interfaces on which a program leads packets to other nodes.
func Leftovers() ([]string, error) {
	list, err := tcfilter.FirstAt(placeOf).Leftovers(work)
	for _, at := range earlier {
		more, ofThese := at.Leftovers(work)
		list, err = append(list, more...), errors.Join(err, ofThese)
	}
	return list, err
}
