package lead

import (
	"net/netip"
	"structs"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Flow is a connection of a client.
type Flow struct {
	Client netip.AddrPort
	Port   uint16
	Proto  uint8
}

// Key is a connection to an address in the map of those that began here: struct flow of
// bpf/flow.h.
type Key struct {
	_            structs.HostLayout
	From, To     [16]byte
	Sport, Dport uint16
	Proto        uint32
}

// KeyOf is the key of a connection.
func KeyOf(f Flow, to netip.Addr) Key {
	return Key{
		From: f.Client.Addr().As16(), To: to.As16(), Proto: uint32(f.Proto),
		Sport: tcfilter.NetworkOrder(f.Client.Port()), Dport: tcfilter.NetworkOrder(f.Port),
	}
}

func (k Key) flow() (f Flow, to netip.Addr) {
	from := netip.AddrFrom16(k.From).Unmap()
	return Flow{netip.AddrPortFrom(from, tcfilter.NetworkOrder(k.Sport)), tcfilter.NetworkOrder(k.Dport), uint8(k.Proto)}, netip.AddrFrom16(k.To).Unmap()
}
