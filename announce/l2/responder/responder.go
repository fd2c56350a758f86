package responder

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Times are what the program goes by when the agent is silent.
type Times struct {
	// Away is after how long without Refresh the program heeds other nodes' adverts.
	Away time.Duration
	// Limit is after how long it lets other nodes take over: it answers clients on,
	// until one does.
	Limit time.Duration
}

// Responder is the program of an interface. It stays when this process ends.
type Responder struct {
	place       tcfilter.Place
	mac         net.HardwareAddr
	times       Times
	self, owned *ebpf.Map
}

// Open attaches the program to an interface, in the network namespace of the calling
// thread. Addresses that an earlier process owned are still there. It takes
// CAP_NET_ADMIN, CAP_BPF, and CAP_SYS_ADMIN to find the program again, and Linux 5.8.
func Open(device *net.Interface, times Times) (*Responder, error) {
	// Without the right to find a program by its number the next process could do
	// nothing with ours.
	if _, err := ebpf.ProgramGetNextID(0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("look for eBPF programs: %w", err)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	r := &Responder{place: place(h, device.Index), mac: device.HardwareAddr, times: times}
	if err := r.load(); err != nil {
		h.Close()
		return nil, fmt.Errorf("answer in the kernel on %s: %w", device.Name, err)
	}
	return r, nil
}

// load puts this version's program in the place of an earlier one's, with its maps.
func (r *Responder) load() error {
	spec, err := loadResponder()
	if err != nil {
		return err
	}
	before, err := r.mapsBefore()
	if err != nil {
		return err
	}
	defer func() {
		for _, m := range before {
			_ = m.Close() // the collection has its own
		}
	}()
	for name, m := range before {
		if s := spec.Maps[name]; s == nil || s.Compatible(m) != nil {
			_ = m.Close()
			delete(before, name)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: before})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer c.Close()
	if err := r.place.Attach(filterName, c.Programs[responderProgRespond].FD()); err != nil {
		return err
	}
	r.self, r.owned = c.DetachMap(responderMapSelf1), c.DetachMap(responderMapOwned1)
	return nil
}

// mapsBefore opens the maps of the program that is attached, by name.
func (r *Responder) mapsBefore() (map[string]*ebpf.Map, error) {
	found := map[string]*ebpf.Map{}
	f, err := r.place.Find()
	if err != nil || f == nil {
		return found, err
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(f.Id))
	if err != nil {
		return nil, fmt.Errorf("open the program there is: %w", err)
	}
	info, err := program.Info()
	if err := errors.Join(err, program.Close()); err != nil {
		return nil, fmt.Errorf("read the program there is: %w", err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("open a map of the program there is: %w", err)
		}
		at, err := m.Info()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read a map of the program there is: %w", err), m.Close())
		}
		found[at.Name] = m
	}
	return found, nil
}

// Refresh says that the agent is at work, whose adverts have this incarnation.
func (r *Responder) Refresh(incarnation uint64) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	s := responderSelf{Refreshed: uint64(now.Nano()), Incarnation: incarnation, Away: uint64(r.times.Away), Limit: uint64(r.times.Limit)}
	copy(s.Mac[:], r.mac)
	return r.self.Put(uint32(0), s)
}

// Add has the program answer for an address, of the claim with an epoch.
func (r *Responder) Add(a netip.Addr, epoch uint32) error {
	return r.owned.Put(responderAddress{Bytes: a.As16()}, responderOwned{Epoch: epoch})
}

// Remove has the program no longer answer for an address, and returns how often it
// did.
func (r *Responder) Remove(a netip.Addr) (answers uint64, err error) {
	key := responderAddress{Bytes: a.As16()}
	var o responderOwned
	if err := r.owned.Lookup(key, &o); err != nil {
		return 0, ignoreAbsent(err)
	}
	return o.Answers, ignoreAbsent(r.owned.Delete(key))
}

func ignoreAbsent(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// Owns reports whether the program answers for an address: no other node has said
// that it does, while the agent was away.
func (r *Responder) Owns(a netip.Addr) bool {
	var o responderOwned
	return r.owned.Lookup(responderAddress{Bytes: a.As16()}, &o) == nil
}

// Claim is what the program knows of an address.
type Claim struct {
	Epoch   uint32
	Answers uint64 // since it was added
}

// Claims lists the addresses that the program answers for.
func (r *Responder) Claims() (map[netip.Addr]Claim, error) {
	claims := map[netip.Addr]Claim{}
	var key responderAddress
	var o responderOwned
	all := r.owned.Iterate()
	for all.Next(&key, &o) {
		claims[netip.AddrFrom16(key.Bytes).Unmap()] = Claim{o.Epoch, o.Answers}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("list addresses that are answered for: %w", err)
	}
	return claims, nil
}

// Close leaves the program where it is.
func (r *Responder) Close() error {
	r.place.Netlink.Close()
	return errors.Join(r.self.Close(), r.owned.Close())
}

// Detach ends the answers.
func (r *Responder) Detach() error {
	_, err := r.place.Detach()
	return err
}
