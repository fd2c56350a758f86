package l2

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// EtherType of adverts: IEEE 802's "local experimental 1". They never leave the
// link.
const EtherType = 0x88b5

// Limits of an advert: the entries of one frame fit into the smallest MTU of
// IPv6, with the longest name of a node.
const (
	maxName    = 253
	maxEntries = 36
	macLength  = 16
	headLength = 4 + 1 + 1 + 8 + 8 + 4 + 1
)

var magic = [4]byte{'F', 'W', 'L', '2'}

const (
	advertVersion = 1

	advertLeaving = 1 // bpf/responder.c knows it, too
	advertAnswers = 2
	advertHears   = 4

	// maxAdvert is the smallest MTU of IPv6, without Ethernet's header.
	maxAdvert = 1280 - etherHead
)

// advert is what a node says to the others on a link: that it lives, and what
// it has to do with some addresses. All of its addresses come by in a cycle,
// those that changed at once.
type advert struct {
	Node string
	// Incarnation is when the node's announcer began, in nanoseconds since 1970;
	// Sequence counts its adverts. Older adverts are not taken in.
	Incarnation, Sequence uint64
	// Cycle counts how often all entries have been sent. What was not in the
	// last complete cycle is gone.
	Cycle   uint32
	Leaving bool // the node ends: its addresses are to be taken over now
	// Answers says that the node's kernel answers questions, whatever its agent does.
	Answers bool
	Entries []entry
	// Hears are some of the nodes that the sender hears; nil if it doesn't say.
	Hears *hearing
}

// entry is what a node has to do with an address.
type entry struct {
	Address netip.Addr
	// Candidate nodes may own the address, Owner nodes answer for it. An owner
	// that is no candidate goes on until another one has it.
	Candidate, Owner bool
	// Probing owners still ask whether a stranger has the address.
	Probing bool
	// Keeps says of a former owner, which has given the address up on purpose, that it
	// has connections left: see handoff.go.
	Keeps bool
	// Gone says of an owner that is no candidate that its data plane has the address no more:
	// the Service may have been deleted, which other nodes hear of in a moment.
	Gone   bool
	Epoch  uint32 // of the claim: the highest counts
	Weight int32
}

const (
	flagCandidate = 1 << iota
	flagOwner
	flagIPv6
	flagProbing
	flagKeeps
	flagGone
)

// marshal writes the advert and signs it. All nodes of a cluster have the key.
func (a *advert) marshal(key []byte) ([]byte, error) {
	if len(a.Node) == 0 || len(a.Node) > maxName {
		return nil, fmt.Errorf("write advert: node name of %d bytes", len(a.Node))
	}
	if len(a.Entries) > maxEntries {
		return nil, fmt.Errorf("write advert: %d entries", len(a.Entries))
	}
	b := append([]byte(nil), magic[:]...)
	var flags byte
	if a.Leaving {
		flags = advertLeaving
	}
	if a.Answers {
		flags |= advertAnswers
	}
	if a.Hears != nil {
		flags |= advertHears
	}
	b = append(b, advertVersion, flags)
	b = binary.BigEndian.AppendUint64(b, a.Incarnation)
	b = binary.BigEndian.AppendUint64(b, a.Sequence)
	b = binary.BigEndian.AppendUint32(b, a.Cycle)
	b = append(b, byte(len(a.Node)))
	b = append(b, a.Node...)
	b = append(b, byte(len(a.Entries)))
	for _, e := range a.Entries {
		b = e.append(b)
	}
	b = append(b, sign(key, b)...)
	if a.Hears != nil { // behind the signature, where nodes of earlier versions don't look
		b = a.Hears.append(b)
		b = append(b, sign(key, b)...)
	}
	return b, nil
}

func (e *entry) append(b []byte) []byte {
	var flags byte
	if e.Candidate {
		flags |= flagCandidate
	}
	if e.Owner {
		flags |= flagOwner
	}
	if e.Probing {
		flags |= flagProbing
	}
	if e.Keeps {
		flags |= flagKeeps
	}
	if e.Gone {
		flags |= flagGone
	}
	if e.Address.Is6() {
		flags |= flagIPv6
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, e.Epoch)
	b = binary.BigEndian.AppendUint32(b, uint32(e.Weight))
	return append(b, e.Address.AsSlice()...)
}

func sign(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:macLength]
}

var (
	errNoAdvert  = errors.New("read advert: it is none")
	errSignature = errors.New("read advert: it isn't signed with this cluster's key")
)

// parseAdvert reads an advert and checks its signatures. Ethernet pads short
// frames, so what follows the last one is left alone.
func parseAdvert(b, key []byte) (*advert, error) {
	if len(b) < headLength || [4]byte(b[:4]) != magic || b[4] != advertVersion {
		return nil, errNoAdvert
	}
	a := &advert{
		Leaving:     b[5]&advertLeaving != 0,
		Answers:     b[5]&advertAnswers != 0,
		Incarnation: binary.BigEndian.Uint64(b[6:]),
		Sequence:    binary.BigEndian.Uint64(b[14:]),
		Cycle:       binary.BigEndian.Uint32(b[22:]),
	}
	at := headLength
	name := int(b[26])
	if name == 0 || len(b) < at+name+1 {
		return nil, errNoAdvert
	}
	a.Node = string(b[at : at+name])
	at += name
	entries := int(b[at])
	at++
	for range entries {
		e, n := parseEntry(b[at:])
		if n == 0 {
			return nil, errNoAdvert
		}
		a.Entries = append(a.Entries, e)
		at += n
	}
	if len(b) < at+macLength {
		return nil, errNoAdvert
	}
	if !hmac.Equal(sign(key, b[:at]), b[at:at+macLength]) {
		return nil, errSignature
	}
	if b[5]&advertHears == 0 {
		return a, nil
	}
	at += macLength
	h, n := parseHearing(b[at:])
	at += n
	if h == nil || len(b) < at+macLength {
		return nil, errNoAdvert
	}
	if !hmac.Equal(sign(key, b[:at]), b[at:at+macLength]) {
		return nil, errSignature
	}
	a.Hears = h
	return a, nil
}

// parseEntry reads an entry and returns its length, 0 if there is none.
func parseEntry(b []byte) (entry, int) {
	if len(b) < 9 {
		return entry{}, 0
	}
	n := 4
	if b[0]&flagIPv6 != 0 {
		n = 16
	}
	if len(b) < 9+n {
		return entry{}, 0
	}
	address, _ := netip.AddrFromSlice(b[9 : 9+n])
	return entry{
		Address:   address,
		Candidate: b[0]&flagCandidate != 0,
		Owner:     b[0]&flagOwner != 0,
		Probing:   b[0]&flagProbing != 0,
		Keeps:     b[0]&flagKeeps != 0,
		Gone:      b[0]&flagGone != 0,
		Epoch:     binary.BigEndian.Uint32(b[1:]),
		Weight:    int32(binary.BigEndian.Uint32(b[5:])),
	}, 9 + n
}
