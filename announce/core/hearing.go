package core

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// Loss can be one-way: A hears B, and B doesn't hear A. Then A's questions say nothing about
// B's kernel, and B doesn't hear A's claims. So adverts list the nodes that their sender
// hears.

// hearing is whom a node hears: those of Names, by hash, of All nodes in turn.
type hearing struct {
	All   uint16
	Names []uint32
}

const hearingHead = 2 + 1

func (h *hearing) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, h.All)
	b = append(b, byte(len(h.Names)))
	for _, n := range h.Names {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// parseHearing reads whom a node hears and returns its length; nil if it is cut off.
func parseHearing(b []byte) (*hearing, int) {
	if len(b) < hearingHead || len(b) < hearingHead+4*int(b[2]) {
		return nil, 0
	}
	h, at := &hearing{All: binary.BigEndian.Uint16(b)}, hearingHead
	for range int(b[2]) {
		h.Names = append(h.Names, binary.BigEndian.Uint32(b[at:]))
		at += 4
	}
	return h, at
}

// hears names the nodes that were heard lately, as many as the advert has room for.
func (e *election) hears(a *Advert) *hearing {
	room := link.MaxLength - link.Overhead - len(a.Node) - hearingHead
	for _, entry := range a.Entries {
		room -= 9 + entry.Address.BitLen()/8
	}
	room -= a.Misses.Fit(room)
	names := slices.DeleteFunc(e.alive(e.lastTick), func(name string) bool { return e.members[name].gone })
	h := &hearing{All: uint16(min(len(names), math.MaxUint16))}
	for range min(len(names), room/4, math.MaxUint8) {
		e.named++
		h.Names = append(h.Names, link.HashOf(names[e.named%len(names)]))
	}
	return h
}

// attention is whether another node hears this one.
type attention struct {
	passed int       // names that it said since it named this node; an advert may be lost
	deaf   bool      // it has named all that it hears twice, and this node isn't among them
	since  time.Time // when it began to be so
}

// take takes in whom a node hears that was silent for some time before.
func (t *attention) take(now time.Time, h *hearing, self uint32, silent time.Duration) {
	if h == nil {
		return
	}
	if slices.Contains(h.Names, self) {
		*t = attention{}
		return
	}
	if silent > askFor { // it may have had no time to hear this node
		*t = attention{}
	}
	t.passed += len(h.Names)
	if t.deaf = t.deaf || t.passed >= 2*int(h.All); t.deaf && t.since.IsZero() {
		t.since = now
	}
}

// longDeaf reports whether a node had the time to hear this one, and doesn't.
func (t *attention) longDeaf(now time.Time) bool { return t.deaf && now.Sub(t.since) >= DeadAfter }
