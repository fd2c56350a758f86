package core

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/fairway-net/fairway/announce/link"
)

// maxEntries of one frame fit into the smallest MTU of IPv6, with the longest name of a node.
const maxEntries = 36

// Format is how adverts are written. It is known to announce/l2/responder/bpf/responder.c, too.
var Format = link.Format[Entry]{Magic: [4]byte{'F', 'W', 'L', '2'}, Entries: maxEntries, Write: Entry.append, Read: parseEntry}

const (
	advertLeaving = 1 << iota // announce/l2/responder/bpf/responder.c knows it, too
	advertAnswers
	advertHears
)

// Advert is what a node says to the others on a link: that it lives, and what
// it has to do with some addresses. All of its addresses come by in a cycle,
// those that changed at once.
type Advert struct {
	Node string
	// Incarnation is the number of the node's announcer; see link.Incarnations.
	Incarnation, Sequence uint64
	// Cycle counts how often all entries have been sent. What was not in the
	// last complete cycle is gone.
	Cycle   uint32
	Leaving bool // the node ends: its addresses are to be taken over now
	// Answers says that the node's kernel answers questions, whatever its agent does.
	Answers bool
	Entries []Entry
	// Hears are some of the nodes that the sender hears; nil if it doesn't say.
	Hears *hearing
	// Misses are nodes that the sender misses: see link.Detector. It goes with Hears.
	Misses *link.Missing
}

// Entry is what a node has to do with an address.
type Entry struct {
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
	Gone bool
	// Strange says that the sender leaves the address alone, since a machine has it that is none
	// of the cluster's.
	Strange bool
	Epoch   uint32 // of the claim: the highest counts
	Weight  int32
}

const (
	flagCandidate = 1 << iota
	flagOwner
	flagIPv6
	flagProbing
	flagKeeps
	flagGone
	flagStrange
)

// Message is the advert as a node with a MAC sends it.
func (a *Advert) Message(mac net.HardwareAddr) *link.Message[Entry] {
	m := &link.Message[Entry]{Head: link.Head{
		Flags: link.Flags(a.Leaving, a.Answers, a.Hears != nil), Incarnation: a.Incarnation, Sequence: a.Sequence, Counter: a.Cycle, MAC: [6]byte(mac), Node: a.Node,
	}, Entries: a.Entries}
	if a.Hears != nil {
		m.Extra = a.Hears.append(nil)
		if a.Misses != nil {
			m.Extra = a.Misses.Append(m.Extra)
		}
	}
	return m
}

// ReadAdvert returns the advert that a message is; nil if it is none.
func ReadAdvert(m *link.Message[Entry]) *Advert {
	a := &Advert{
		Leaving: m.Flags&advertLeaving != 0, Answers: m.Flags&advertAnswers != 0,
		Incarnation: m.Incarnation, Sequence: m.Sequence, Cycle: m.Counter, Node: m.Node, Entries: m.Entries,
	}
	if m.Flags&advertHears != 0 {
		var n int
		if a.Hears, n = parseHearing(m.Extra); a.Hears == nil {
			return nil
		}
		a.Misses = link.ParseMissing(m.Extra[n:])
	}
	return a
}

func (e Entry) append(b []byte) []byte {
	b = append(b, link.Flags(e.Candidate, e.Owner, e.Address.Is6(), e.Probing, e.Keeps, e.Gone, e.Strange))
	b = binary.BigEndian.AppendUint32(b, e.Epoch)
	b = binary.BigEndian.AppendUint32(b, uint32(e.Weight))
	return append(b, e.Address.AsSlice()...)
}

// parseEntry reads an entry and returns its length, 0 if there is none.
func parseEntry(b []byte) (Entry, int) {
	if len(b) < 9 {
		return Entry{}, 0
	}
	n := 4
	if b[0]&flagIPv6 != 0 {
		n = 16
	}
	if len(b) < 9+n {
		return Entry{}, 0
	}
	address, _ := netip.AddrFromSlice(b[9 : 9+n])
	return Entry{
		Address:   address,
		Candidate: b[0]&flagCandidate != 0,
		Owner:     b[0]&flagOwner != 0,
		Probing:   b[0]&flagProbing != 0,
		Keeps:     b[0]&flagKeeps != 0,
		Gone:      b[0]&flagGone != 0,
		Strange:   b[0]&flagStrange != 0,
		Epoch:     binary.BigEndian.Uint32(b[1:]),
		Weight:    int32(binary.BigEndian.Uint32(b[5:])),
	}, 9 + n
}
