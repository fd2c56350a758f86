package strays

import (
	"net/netip"

	"github.com/fairway-net/fairway/announce/wire"
)

// EtherType of messages: IEEE 802's "local experimental 2". They never leave the link.
const EtherType = 0x88b6

const (
	maxEntries  = 50 // with the longest name, they fit into the smallest MTU of IPv6
	flagLeaving = 1
)

var format = wire.Format{Magic: [4]byte{'F', 'W', 'S', 'T'}, Version: 1, Entries: maxEntries}

// message is what a node says to the others on a link: that it is there, and what it has to
// do with some addresses.
type message struct {
	Node string
	// Incarnation is when the node's process began, in nanoseconds since 1970; Sequence
	// counts its messages. Older ones are not taken in.
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

// marshal writes the message and signs it. All nodes of a cluster have the key.
func (m *message) marshal(key []byte) ([]byte, error) {
	h := wire.Head{Flags: wire.Flags(m.Leaving), Incarnation: m.Incarnation, Sequence: m.Sequence, Counter: m.Ask, Node: m.Node}
	return wire.Write(&format, h, m.Entries, entry.append, key)
}

func (e entry) append(b []byte) []byte {
	return append(append(b, wire.Flags(e.Address.Is6(), e.Asks, e.Prepared, e.Holds)), e.Address.AsSlice()...)
}

// parse reads a message and checks its signature.
func parse(b, key []byte) (*message, error) {
	h, entries, _, err := wire.Read(&format, b, key, parseEntry)
	if err != nil {
		return nil, err
	}
	return &message{
		Node: h.Node, Incarnation: h.Incarnation, Sequence: h.Sequence, Ask: h.Counter, Leaving: h.Flags&flagLeaving != 0, Entries: entries,
	}, nil
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
