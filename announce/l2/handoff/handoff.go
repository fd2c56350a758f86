package handoff

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

// Handoff is the program of an interface. It stays when this process ends.
type Handoff struct {
	device   *net.Interface
	site     tcfilter.First
	maps     *ebpf.Collection
	attached bool
	leads    map[netip.Addr]net.HardwareAddr
	newFlows time.Duration
}

// Flow is a connection of a client.
type Flow struct {
	Client netip.AddrPort
	Port   uint16
	Proto  uint8
}

// unseenUDP is for how long UDP flows are taken for the former owner's when they show up:
// they have no beginning that could be seen.
const unseenUDP = 2 * time.Second

// Open loads the program for an interface in the network namespace of the calling thread.
// What an earlier process led elsewhere is still led there; otherwise nothing is attached
// yet. It takes CAP_BPF, CAP_NET_ADMIN, and CAP_SYS_ADMIN to find the program again, and
// Linux 5.10.
func Open(device *net.Interface) (*Handoff, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	n, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	h := &Handoff{device: device, site: siteOf(n, device.Index), leads: map[netip.Addr]net.HardwareAddr{}, newFlows: unseenUDP}
	if err := h.load(); err != nil {
		n.Close()
		return nil, fmt.Errorf("load the program that leads connections to their former node: %w", err)
	}
	return h, nil
}

// IsThere reports whether an earlier process left its program at an interface.
func IsThere(device *net.Interface) bool {
	return tcfilter.FirstAt(siteOf).IsThere(device.Index)
}

// load puts this version's program in the place of an earlier one's, with its maps.
func (h *Handoff) load() error {
	spec, err := loadHandoff()
	if err != nil {
		return err
	}
	there, _, err := h.site.Open()
	if err != nil {
		return err
	}
	h.maps, err = tcfilter.LoadSuccessor(spec, there)
	if there != nil {
		err = errors.Join(err, there.Close())
	}
	if err != nil {
		return err
	}
	if there == nil {
		return nil
	}
	if err := h.attach(); err != nil {
		h.maps.Close()
		return err
	}
	var key handoffAddress
	var f handoffFormer
	for all := h.maps.Maps[handoffMapFormers].Iterate(); all.Next(&key, &f); {
		h.leads[netip.AddrFrom16(key.Bytes).Unmap()] = net.HardwareAddr(f.Mac[:])
	}
	return nil
}

func (h *Handoff) attach() error {
	if err := h.site.Put(h.maps.Programs[handoffProgHandoff]); err != nil {
		return err
	}
	h.attached = true
	return nil
}

// Leads are the addresses whose connections are led elsewhere, with the MAC of where to.
func (h *Handoff) Leads() map[netip.Addr]net.HardwareAddr { return h.leads }

// Lead has packets to an address led to its former owner, for as long as a time at most,
// but for connections that began here before, which are given, and those that begin from
// now on.
func (h *Handoff) Lead(a netip.Addr, to net.HardwareAddr, begun []Flow, most time.Duration) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	if err := h.note(a, begun, uint64(now)); err != nil {
		return fmt.Errorf("tell connections of %s that began here: %w", a, err)
	}
	f := handoffFormer{Until: uint64(now + most), NewUntil: uint64(now + h.newFlows)}
	copy(f.Mac[:], to)
	copy(f.Own[:], h.device.HardwareAddr)
	if err := h.maps.Maps[handoffMapFormers].Put(handoffAddress{Bytes: a.As16()}, f); err != nil {
		return fmt.Errorf("lead connections of %s to their former node: %w", a, err)
	}
	h.leads[a] = to
	if h.attached {
		return nil
	}
	if err := h.attach(); err != nil {
		return fmt.Errorf("lead connections of %s to their former node: %w", a, err)
	}
	return nil
}

// note notes connections that began here.
func (h *Handoff) note(a netip.Addr, begun []Flow, now uint64) error {
	for _, b := range begun {
		key := handoffFlow{From: handoffAddress{Bytes: b.Client.Addr().As16()}, To: handoffAddress{Bytes: a.As16()}, Proto: uint32(b.Proto)}
		key.Sport, key.Dport = tcfilter.NetworkOrder(b.Client.Port()), tcfilter.NetworkOrder(b.Port)
		if err := h.maps.Maps[handoffMapBegun].Put(key, now); err != nil {
			return err
		}
	}
	return nil
}

// End has no more packets of an address led elsewhere, and returns how many were. With the
// last address the program goes, and what it noted.
func (h *Handoff) End(a netip.Addr) (packets uint64, err error) {
	key := handoffAddress{Bytes: a.As16()}
	var f handoffFormer
	if err := h.maps.Maps[handoffMapFormers].Lookup(key, &f); err == nil {
		packets = f.Forwarded
	}
	if err := h.maps.Maps[handoffMapFormers].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return packets, fmt.Errorf("end leading connections of %s to their former node: %w", a, err)
	}
	delete(h.leads, a)
	if len(h.leads) > 0 || !h.attached {
		return packets, nil
	}
	h.attached = false
	_, err = h.site.Remove()
	return packets, errors.Join(err, h.renew())
}

// renew forgets connections that began here: the next ones at another node may have the same
// clients and ports.
func (h *Handoff) renew() error {
	before := h.maps
	if err := h.load(); err != nil {
		h.maps = before
		return fmt.Errorf("forget connections that began here: %w", err)
	}
	before.Close()
	return nil
}

// Close leaves the program where it is, if there is a connection to lead.
func (h *Handoff) Close() error {
	h.maps.Close()
	h.site.Netlink.Close()
	return nil
}

// Detach ends all of it.
func (h *Handoff) Detach() error {
	_, err := h.site.Remove()
	return errors.Join(err, h.Close())
}
