package nftables

import (
	"net/netip"

	"github.com/fairway-net/fairway/internal/kernel"
)

// A set without a size is a hash table that grows while it is filled, for which
// the kernel takes almost twice as long (rhashtable_insert_slow). With a size it
// has its buckets from the beginning, and then nothing more fits into it: but
// that can be undone at the end of the same transaction, since Linux 6.5 (commit
// 96b2ef9b16cb). The number of buckets stays what it was, so lookups would take
// longer only in a table that has grown tenfold since.
const (
	// worthRoom is how many elements a set must have for that.
	worthRoom = 8192
	// growth is how often they fit in.
	growth = 2
	// unbounded is a size that no set reaches. The kernel adds small numbers to it.
	unbounded = 1 << 30
)

// initialSizes are the sizes with which large sets begin.
func (t *target) initialSizes() map[*set]uint32 {
	if !kernel.AtLeast(6, 5) {
		return nil
	}
	elements := map[*set]int{}
	for _, ps := range t.state.pools {
		elements[pools]++
		elements[setsOf(ps.pool.ID.IPv6).slots] += len(ps.slots)
	}
	for key := range t.state.backends {
		elements[setsOf(!netip.AddrFrom16(key.addr).Is4In6()).backends]++
	}
	for f := range t.want.Frontends() {
		own := setsOf(f.Addr.Is6())
		elements[own.connections]++
		for _, from := range own.from {
			elements[from]++
		}
	}
	room := map[*set]uint32{}
	for s, n := range elements {
		if n >= worthRoom {
			room[s] = uint32(growth * n)
		}
	}
	return room
}
