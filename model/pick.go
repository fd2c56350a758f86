package model

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// Maglev is the table by which a pool with the scheduler [MaglevHashing] or
// [MaglevPortHashing] chooses a backend: Backends[m[hash%len(m)]] takes the connection. It depends on the
// addresses, ports and weights of the backends only. So all nodes with the same
// backends choose alike, whatever they saw before.
// Source: Eisenbud et al., NSDI 2016, section 3.4.
type Maglev []uint16

// maglevSizes are the numbers of places that a table can have, and up to how
// many backends: primes, as the permutations demand. Two bytes a place bound the
// memory: 4 kB, 32 kB, and 256 kB for a pool of more than 819 backends. Below
// the last bound, a backend has at least 20 places; 10,000 backends have 13 or
// 14 each. A pool that outgrows its size chooses anew for most clients.
var maglevSizes = []struct{ backends, places int }{
	{20, 2039},
	{819, 16381},
	{MaxMaglev, 131071},
}

// MaxMaglev is how many backends a Maglev table can name. Others get no
// connections by it.
const MaxMaglev = 1<<16 - 1

// Maglev makes the pool's table; nil if the pool has no backends. It takes some
// 20 ns a place: keep it as long as the pool.
//
// Every backend has an order of preference among the places, which follows from
// its address and port. In each round, the backends take the first place in
// their order that is free: the one of greatest weight always, the others as
// often as their weight is of that. All have one place at least.
func (p *Pool) Maglev() Maglev {
	backends := p.Backends[:min(len(p.Backends), MaxMaglev)]
	if len(backends) == 0 {
		return nil
	}
	return maglev(backends, maglevPlaces(len(backends)))
}

// maglev makes a table of so many places for backends of which there must be some.
func maglev(backends []Backend, places int) Maglev {
	table, taken := make(Maglev, places), make([]bool, places)
	orders, most := make([]preference, len(backends)), 0
	for i, b := range backends {
		orders[i] = preferenceOf(b.AddrPort(), uint32(places))
		most = max(most, int(b.Weight))
	}
	for round, left := 1, places; ; round++ {
		for i := range orders {
			o := &orders[i]
			if round*int(backends[i].Weight) < o.due {
				continue
			}
			o.due += most
			for taken[o.next] {
				o.advance(uint32(places))
			}
			table[o.next], taken[o.next] = uint16(i), true
			if left--; left == 0 {
				return table
			}
		}
	}
}

// Pick is the specification of Maglev hashing: the backend of a connection with
// this hash ([HashAddr], [HashAddrPort]), and whether there is one. It makes the
// table each time; [Maglev.Pick] is for those who keep it.
func (p *Pool) Pick(hash uint32) (b Backend, found bool) {
	i, found := p.Maglev().Pick(hash)
	if !found {
		return Backend{}, false
	}
	return p.Backends[i], true
}

// Pick is the index of the backend in Pool.Backends for a hash, and whether
// there is one.
func (m Maglev) Pick(hash uint32) (index int, found bool) {
	if len(m) == 0 {
		return 0, false
	}
	return int(m[hash%uint32(len(m))]), true
}

func maglevPlaces(backends int) int {
	for _, s := range maglevSizes {
		if backends <= s.backends {
			return s.places
		}
	}
	return maglevSizes[len(maglevSizes)-1].places
}

// preference is a backend's order of places: next, then always skip further.
type preference struct {
	next, skip uint32
	due        int // weight times rounds until the backend takes another place
}

func (o *preference) advance(places uint32) {
	if o.next += o.skip; o.next >= places {
		o.next -= places
	}
}

// preferenceOf hashes the address as 16 bytes and the port, in network order.
func preferenceOf(b netip.AddrPort, places uint32) preference {
	addr := b.Addr().As16()
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint16(addr[:], b.Port())) // never fails (hash.Hash)
	sum := h.Sum64()
	sum = (sum ^ sum>>32) * 0xd6e8feb86659fd93 // FNV leaves the upper bits of neighbours alike
	sum = (sum ^ sum>>32) * 0xd6e8feb86659fd93
	return preference{next: uint32(sum>>32) % places, skip: uint32(sum)%(places-1) + 1}
}

// HashAddr is the hash of a client's address, the same on every node and in the
// kernel. IPv4 addresses are taken as IPv4-mapped ones. The words are read as
// little-endian machines find them in a packet.
func HashAddr(a netip.Addr) uint32 {
	b := a.As16()
	h := uint32(0)
	for i := 0; i < len(b); i += 4 {
		h = mix(h ^ binary.LittleEndian.Uint32(b[i:]))
	}
	return h
}

// HashAddrPort is the hash of a client's address and port: connections of one
// client are spread, packets of one connection are not, on whichever node they
// arrive (ECMP).
func HashAddrPort(a netip.AddrPort) uint32 { return mix(HashAddr(a.Addr()) ^ uint32(a.Port())) }

// mix spreads 32 bits over 32 bits, each onto all.
// Source: Wellons, "Prospecting for Hash Functions", 2018 (lowbias32).
func mix(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x7feb352d
	h ^= h >> 15
	h *= 0x846ca68b
	return h ^ h>>16
}
