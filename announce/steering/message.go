package steering

import (
	"net"
	"net/netip"

	"github.com/fairway-net/fairway/announce/link"
)

// EtherType of messages: IEEE 802's "local experimental 2". They never leave the link.
const EtherType = 0x88b6

const (
	maxEntries  = 50 // with the longest name, they fit into the smallest MTU of IPv6
	flagLeaving = 1
)

var format = link.Format[entry]{Magic: [4]byte{'F', 'W', 'S', 'T'}, Entries: maxEntries, Write: entry.append, Read: parseEntry}

// message is what a node says to the others on a link: that it is there, and what it has to
// do with some addresses.
type message struct {
	Node string
	// Incarnation is the number of the node's process; see link.Incarnations.
	Incarnation, Sequence uint64
	// Ask counts the planned changes that the node has asked others to prepare for.
	Ask     uint32
	Leaving bool // it announces nothing any more, or is about to
	Entries []entry
}

// entry is what a node has to do with an address.
type entry struct {
	Address netip.Addr
	// Asks has others prepare for a change. Prepared nodes have noted the connections that
	// they have. Holds says that these are not all over.
	Asks, Prepared, Holds bool
}

const (
	flagIPv6 = 1 << iota
	flagAsks
	flagPrepared
	flagHolds
)

// frame is the message as a node with a MAC sends it.
func (m *message) frame(mac net.HardwareAddr) *link.Message[entry] {
	return &link.Message[entry]{Head: link.Head{
		Flags: link.Flags(m.Leaving), Incarnation: m.Incarnation, Sequence: m.Sequence, Counter: m.Ask, MAC: [6]byte(mac), Node: m.Node,
	}, Entries: m.Entries}
}

func readMessage(m *link.Message[entry]) *message {
	return &message{
		Node: m.Node, Incarnation: m.Incarnation, Sequence: m.Sequence, Ask: m.Counter, Leaving: m.Flags&flagLeaving != 0, Entries: m.Entries,
	}
}

func (e entry) append(b []byte) []byte {
	return append(append(b, link.Flags(e.Address.Is6(), e.Asks, e.Prepared, e.Holds)), e.Address.AsSlice()...)
}

// parseEntry reads an entry and returns its length, 0 if there is none.
func parseEntry(b []byte) (entry, int) {
	if len(b) == 0 {
		return entry{}, 0
	}
	n := 4
	if b[0]&flagIPv6 != 0 {
		n = 16
	}
	if len(b) < 1+n {
		return entry{}, 0
	}
	address, _ := netip.AddrFromSlice(b[1 : 1+n])
	return entry{Address: address, Asks: b[0]&flagAsks != 0, Prepared: b[0]&flagPrepared != 0, Holds: b[0]&flagHolds != 0}, 1 + n
}
