package allocator

import (
	"net/netip"

	"github.com/fairway-net/fairway/internal/iprange"
)

// buggy reports whether some old routers and clients can't use the address:
// they take the first and the last address of a class C network for a network's
// and a broadcast address.
func buggy(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	last := a.As4()[3]
	return last == 0 || last == 255
}

// buggyIn counts the buggy addresses of a range.
func buggyIn(r iprange.Range) int64 {
	if !r.From.Is4() {
		return 0
	}
	upTo := func(a netip.Addr, last byte) int64 { // of those that end in last, how many are not above a
		b := a.As4()
		n := int64(b[0])<<16 | int64(b[1])<<8 | int64(b[2])
		if b[3] >= last {
			n++
		}
		return n
	}
	var n int64
	for _, last := range []byte{0, 255} {
		n += upTo(r.To, last) - upTo(r.From, last)
		if r.From.As4()[3] == last {
			n++
		}
	}
	return n
}
