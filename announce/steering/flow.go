package steering

import (
	"net/netip"
	"structs"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Flow is a connection of a client.
type Flow struct {
	Client netip.AddrPort
	Port   uint16
	Proto  uint8
}

// Connections lists those that this node has to addresses.
type Connections func(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error)

// FlowsOf are connections as the program knows them.
func FlowsOf(list []kernel.Connection) map[Flow]bool {
	flows := make(map[Flow]bool, len(list))
	for _, c := range list {
		flows[Flow{Client: c.Client, Port: c.Port, Proto: uint8(c.Proto)}] = true
	}
	return flows
}

// flowKey is a connection to an address in the map of those that began here: struct flow of
// bpf/flow.h.
type flowKey struct {
	_            structs.HostLayout
	From, To     [16]byte
	Sport, Dport uint16
	Proto        uint32
}

func keyOf(f Flow, to netip.Addr) flowKey {
	return flowKey{
		From: f.Client.Addr().As16(), To: to.As16(), Proto: uint32(f.Proto),
		Sport: tcfilter.NetworkOrder(f.Client.Port()), Dport: tcfilter.NetworkOrder(f.Port),
	}
}

func (k flowKey) flow() (f Flow, to netip.Addr) {
	from := netip.AddrFrom16(k.From).Unmap()
	return Flow{netip.AddrPortFrom(from, tcfilter.NetworkOrder(k.Sport)), tcfilter.NetworkOrder(k.Dport), uint8(k.Proto)}, netip.AddrFrom16(k.To).Unmap()
}
