package allocator

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// addresses is a Service CIDR: its addresses numbered from the first usable.
type addresses struct {
	*pool
	prefix netip.Prefix
	first  netip.Addr
	own    bool // one of the server's configuration
	// open says that addresses are given out of it.
	open atomic.Bool
}

// newAddresses numbers the usable addresses of a Service CIDR: not the
// network's own, nor, in IPv4, the broadcast address.
func newAddresses(prefix netip.Prefix) (*addresses, error) {
	prefix = prefix.Masked()
	hostBits := prefix.Addr().BitLen() - prefix.Bits()
	switch {
	case hostBits < 2:
		return nil, fmt.Errorf("service CIDR %s is too small: at least four addresses are needed", prefix)
	case hostBits > 63:
		return nil, fmt.Errorf("service CIDR %s is too large: /65 is the largest IPv6 range", prefix)
	}
	size := uint64(1)<<hostBits - 1
	if prefix.Addr().Is4() {
		size--
	}
	return &addresses{
		pool:   newPool(size, staticBand(size, 16, 256)),
		prefix: prefix,
		first:  prefix.Addr().Next(),
	}, nil
}

func (a *addresses) family() corev1.IPFamily { return familyOf(a.prefix.Addr()) }

func (a *addresses) address(n uint64) netip.Addr {
	raw := a.first.As16()
	low := binary.BigEndian.Uint64(raw[8:]) + n
	binary.BigEndian.PutUint64(raw[8:], low)
	addr := netip.AddrFrom16(raw)
	if a.first.Is4() {
		return addr.Unmap()
	}
	return addr
}

func (a *addresses) number(addr netip.Addr) (uint64, bool) {
	if !a.prefix.Contains(addr) {
		return 0, false
	}
	raw, first := addr.As16(), a.first.As16()
	n := binary.BigEndian.Uint64(raw[8:]) - binary.BigEndian.Uint64(first[8:])
	return n, n < a.size
}

// ports is the node port range.
type ports struct {
	*pool
	base uint64
	all  utilnet.PortRange
}

func newPorts(r utilnet.PortRange) *ports {
	size := uint64(r.Size)
	return &ports{pool: newPool(size, staticBand(size, 32, 128)), base: uint64(r.Base), all: r}
}

func (p *ports) port(n uint64) int32 { return int32(p.base + n) }

func (p *ports) number(port int32) (uint64, bool) {
	if !p.all.Contains(int(port)) {
		return 0, false
	}
	return uint64(port) - p.base, true
}

// staticBand is the size of the part kept for numbers asked for explicitly,
// min(max(16, size/step), most), and nothing in a small range.
func staticBand(size, step, most uint64) uint64 {
	if size < 16 {
		return 0
	}
	return min(max(16, size/step), most)
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
