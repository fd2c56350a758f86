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
	place       tcfilter.First
	mac         net.HardwareAddr
	times       Times
	self, owned *ebpf.Map
	asked       *ebpf.Map
}

// Open attaches the program to an interface, in the network namespace of the calling
// thread. Addresses that an earlier process owned are still there. It takes
// CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON and Linux 5.8.
func Open(device *net.Interface, times Times) (*Responder, error) {
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
	earlier, err := r.place.Open()
	if err != nil {
		return err
	}
	c, err := r.place.LoadSuccessor(spec, earlier)
	if earlier != nil {
		err = errors.Join(err, earlier.Close())
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if err := r.place.Put(c); err != nil {
		return err
	}
	r.self, r.owned, r.asked = c.DetachMap(responderMapSelf1), c.DetachMap(responderMapOwned1), c.DetachMap(responderMapAsked1)
	return nil
}

// Refresh says that the agent is at work, whose adverts have this incarnation.
func (r *Responder) Refresh(incarnation uint64) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	s := responderSelf{Refreshed: uint64(now), Incarnation: incarnation, Away: uint64(r.times.Away), Limit: uint64(r.times.Limit)}
	copy(s.Mac[:], r.mac)
	return r.self.Put(uint32(0), s)
}

// Asked is how many questions of other nodes the program has answered, in this process's time or
// an earlier one's.
func (r *Responder) Asked() (questions uint64, err error) {
	err = r.asked.Lookup(uint32(0), &questions)
	return questions, err
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
	return errors.Join(r.self.Close(), r.owned.Close(), r.asked.Close())
}

// Detach ends the answers.
func (r *Responder) Detach() error {
	_, err := r.place.Remove()
	return err
}
