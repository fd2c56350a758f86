package kernel

import (
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// Count is what a plane has counted of one frontend. Counts only grow, except
// that they begin at 0 again when the kernel's objects are made anew or, after
// a time without traffic, forgotten: readers add up differences.
type Count struct {
	// Frontend is what was counted at, or one of those of its Service port where
	// the plane can't tell them apart.
	Frontend model.Key
	// Connections are new connections (for UDP: flows) that got a backend.
	Connections uint64
	// Refused are packets that got none: rejected or dropped because there was
	// no backend, or because the source isn't let in.
	Refused uint64
	// NoBackend and NotAllowed are those of Refused of which the plane can tell
	// which of the two it was.
	NoBackend, NotAllowed uint64
	// In and Out are bytes of packets from and to clients, IP headers included;
	// 0 unless the plane can tell, and counts them anyway or because
	// Options.CountBytes asks for it.
	In, Out uint64
}

// BackendCount is what a plane has counted of a backend in a pool; it begins at 0
// again as Count does.
type BackendCount struct {
	Pool    model.PoolID
	Backend netip.AddrPort
	// Connections are those that were led to it.
	Connections uint64
	// Packets and Bytes are of both directions, IP headers included, as far as the
	// plane sees them.
	Packets, Bytes uint64
}

// MapUsage is how full one of the maps is that a plane's programs fill.
type MapUsage struct {
	Map           string
	Entries, Size int
	// Limit is the size that it may grow to.
	Limit int
}

// DropStats says how many packets a plane has dropped for one of a few reasons that
// are no Service's: "table_full".
type DropStats struct {
	Reason  string
	Packets uint64
}

// Strays say what has become of connections with stable flows whose packets came in at
// this node from the middle on.
type Strays struct {
	// Forwarded are connections that were led on to their backend's node.
	Forwarded uint64
	// ForwardedAgain are packets that another node sent here, and that went on to the
	// second choice.
	ForwardedAgain uint64
	// Reset are packets that were answered by a RST, since nobody knew their connection.
	Reset uint64
}

// Packets are what a plane has counted of all packets, whatever their frontend;
// they begin at 0 again when the kernel's objects are made anew.
type Packets struct {
	// InvalidDropped were dropped because conntrack couldn't place them.
	InvalidDropped uint64
	// LocalhostNodePorts were packets to node ports at loopback addresses.
	LocalhostNodePorts uint64
	// Rules are iptables rules of the plane; nil where it has none.
	Rules []RuleCount
}

// RuleCount says how many rules a plane has in a table of iptables.
type RuleCount struct {
	IPv6  bool
	Table string // "nat", "filter", ...
	Total int
	Last  int // written by the last Apply
}
