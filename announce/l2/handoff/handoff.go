package handoff

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Handoff is the program of an interface.
type Handoff struct {
	device   *net.Interface
	maps     *ebpf.Collection
	detach   func() error // nil while the program isn't attached
	formers  map[netip.Addr]bool
	newFlows time.Duration
}

// unseenUDP is for how long UDP flows are taken for the former owner's when they show up:
// they have no beginning that could be seen.
const unseenUDP = 2 * time.Second

// Open loads the program for an interface, and attaches nothing yet. It takes CAP_BPF and
// CAP_NET_ADMIN, and Linux 5.10.
func Open(device *net.Interface) (*Handoff, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	spec, err := loadHandoff()
	if err != nil {
		return nil, err
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the program that leads connections to their former node: %w", err)
	}
	return &Handoff{device: device, maps: c, formers: map[netip.Addr]bool{}, newFlows: unseenUDP}, nil
}

// Lead has packets to an address, of connections that don't begin from now on, led to its
// former owner, for as long as a time at most.
func (h *Handoff) Lead(a netip.Addr, to net.HardwareAddr, most time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	f := handoffFormer{Until: uint64(now.Nano() + int64(most)), NewUntil: uint64(now.Nano() + int64(h.newFlows))}
	copy(f.Mac[:], to)
	copy(f.Own[:], h.device.HardwareAddr)
	if err := h.maps.Maps[handoffMapFormers].Put(handoffAddress{Bytes: a.As16()}, f); err != nil {
		return fmt.Errorf("lead connections of %s to their former node: %w", a, err)
	}
	h.formers[a] = true
	if h.detach != nil {
		return nil
	}
	detach, err := attach(h.device, h.maps.Programs[handoffProgHandoff])
	if err != nil {
		return fmt.Errorf("lead connections of %s to their former node: %w", a, err)
	}
	h.detach = detach
	return nil
}

// End has no more packets of an address led elsewhere, and returns how many were.
func (h *Handoff) End(a netip.Addr) (packets uint64, err error) {
	key := handoffAddress{Bytes: a.As16()}
	var f handoffFormer
	if err := h.maps.Maps[handoffMapFormers].Lookup(key, &f); err == nil {
		packets = f.Forwarded
	}
	if err := h.maps.Maps[handoffMapFormers].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return packets, fmt.Errorf("end leading connections of %s to their former node: %w", a, err)
	}
	delete(h.formers, a)
	if len(h.formers) > 0 || h.detach == nil {
		return packets, nil
	}
	detach := h.detach
	h.detach = nil
	return packets, detach()
}

// Close ends all of it.
func (h *Handoff) Close() error {
	var err error
	if h.detach != nil {
		err = h.detach()
	}
	h.maps.Close()
	return err
}
