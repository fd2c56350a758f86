package handoff

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

// Handoff is the program of an interface. It stays when this process ends.
type Handoff struct {
	*lead.Program
	device   *net.Interface
	leads    map[netip.Addr]net.HardwareAddr
	newFlows time.Duration
}

// Open loads the program for an interface in the network namespace of the calling thread.
// What an earlier process led elsewhere is still led there; see lead.Open.
func Open(device *net.Interface) (*Handoff, error) {
	program, err := lead.Open(device, siteOf, loadHandoff)
	if err != nil {
		return nil, fmt.Errorf("lead connections to their former node: %w", err)
	}
	h := &Handoff{program, device, map[netip.Addr]net.HardwareAddr{}, lead.UnseenUDP}
	var key handoffAddress
	var f handoffFormer
	for all := h.Maps[handoffMapFormers].Iterate(); all.Next(&key, &f); {
		h.leads[netip.AddrFrom16(key.Bytes).Unmap()] = slices.Clone(f.Mac[:])
	}
	return h, nil
}

// IsThere reports whether an earlier process left its program at an interface.
func IsThere(device *net.Interface) bool {
	return tcfilter.FirstAt(siteOf).IsThere(device.Index)
}

// Leads are the addresses whose connections are led elsewhere, with the MAC of where to.
func (h *Handoff) Leads() map[netip.Addr]net.HardwareAddr { return h.leads }

// Lead has packets to an address led to its former owner, for as long as a time at most,
// but for connections that began here before, which are given, and those that begin from
// now on.
func (h *Handoff) Lead(a netip.Addr, to net.HardwareAddr, begun []lead.Flow, most time.Duration) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	if err := h.Note(a, begun); err != nil {
		return err
	}
	f := handoffFormer{Until: uint64(now + most), NewUntil: uint64(now + h.newFlows)}
	copy(f.Mac[:], to)
	copy(f.Own[:], h.device.HardwareAddr)
	if err := h.Maps[handoffMapFormers].Put(handoffAddress{Bytes: a.As16()}, f); err != nil {
		return fmt.Errorf("lead connections of %s to their former node: %w", a, err)
	}
	h.leads[a] = to
	if err := h.Attach(); err != nil {
		return fmt.Errorf("lead connections of %s to their former node: %w", a, err)
	}
	return nil
}

// End has no more packets of an address led elsewhere, and returns how many were. With the
// last address the program goes, and what it noted.
func (h *Handoff) End(a netip.Addr) (packets uint64, err error) {
	key := handoffAddress{Bytes: a.As16()}
	var f handoffFormer
	if err := h.Maps[handoffMapFormers].Lookup(key, &f); err == nil {
		packets = f.Forwarded
	}
	if err := h.Maps[handoffMapFormers].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return packets, fmt.Errorf("end leading connections of %s to their former node: %w", a, err)
	}
	delete(h.leads, a)
	if len(h.leads) > 0 || !h.IsThere() {
		return packets, nil
	}
	// The next connections at another node may have the same clients and ports.
	return packets, errors.Join(h.Remove(), h.Renew())
}
