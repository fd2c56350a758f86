package strays

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// EtherType of messages: IEEE 802's "local experimental 2". They never leave the link.
const EtherType = 0x88b6

const (
	maxName    = 253
	maxEntries = 50 // with the longest name, they fit into the smallest MTU of IPv6
	macLength  = 16
	headLength = 4 + 1 + 1 + 8 + 8 + 4 + 1

	messageVersion = 1
	flagLeaving    = 1
)

var magic = [4]byte{'F', 'W', 'S', 'T'}

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
	if len(m.Node) == 0 || len(m.Node) > maxName {
		return nil, fmt.Errorf("write message: node name of %d bytes", len(m.Node))
	}
	if len(m.Entries) > maxEntries {
		return nil, fmt.Errorf("write message: %d entries", len(m.Entries))
	}
	b := append([]byte(nil), magic[:]...)
	var flags byte
	if m.Leaving {
		flags = flagLeaving
	}
	b = append(b, messageVersion, flags)
	b = binary.BigEndian.AppendUint64(b, m.Incarnation)
	b = binary.BigEndian.AppendUint64(b, m.Sequence)
	b = binary.BigEndian.AppendUint32(b, m.Ask)
	b = append(b, byte(len(m.Node)))
	b = append(b, m.Node...)
	b = append(b, byte(len(m.Entries)))
	for _, e := range m.Entries {
		b = e.append(b)
	}
	return append(b, sign(key, b)...), nil
}

func (e *entry) append(b []byte) []byte {
	var flags byte
	for _, f := range []struct {
		is   bool
		flag byte
	}{{e.Address.Is6(), flagIPv6}, {e.Asks, flagAsks}, {e.Prepared, flagPrepared}, {e.Holds, flagHolds}} {
		if f.is {
			flags |= f.flag
		}
	}
	return append(append(b, flags), e.Address.AsSlice()...)
}

func sign(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)[:macLength]
}

var (
	errNoMessage = errors.New("read message: it is none")
	errSignature = errors.New("read message: it isn't signed with this cluster's key")
)

// parse reads a message and checks its signature. Ethernet pads short frames, so what
// follows the signature is left alone.
func parse(b, key []byte) (*message, error) {
	if len(b) < headLength || [4]byte(b[:4]) != magic || b[4] != messageVersion {
		return nil, errNoMessage
	}
	m := &message{
		Leaving: b[5]&flagLeaving != 0, Incarnation: binary.BigEndian.Uint64(b[6:]),
		Sequence: binary.BigEndian.Uint64(b[14:]), Ask: binary.BigEndian.Uint32(b[22:]),
	}
	at, name := headLength, int(b[26])
	if name == 0 || len(b) < at+name+1 {
		return nil, errNoMessage
	}
	m.Node = string(b[at : at+name])
	at += name
	entries := int(b[at])
	at++
	for range entries {
		e, n := parseEntry(b[at:])
		if n == 0 {
			return nil, errNoMessage
		}
		m.Entries = append(m.Entries, e)
		at += n
	}
	if len(b) < at+macLength {
		return nil, errNoMessage
	}
	if !hmac.Equal(sign(key, b[:at]), b[at:at+macLength]) {
		return nil, errSignature
	}
	return m, nil
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
