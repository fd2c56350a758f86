package nftables

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// memberNumber is what the layout's learn chains work out for a connection of
// this pool that goes to this backend.
func memberNumber(pool uint32, backend netip.AddrPort) uint32 {
	h := jhash([]byte(native(pool)+addrPortFields(backend)), memberSeed)
	// reciprocal_scale (linux/math.h), as in net/netfilter/nft_hash.c
	return uint32(uint64(h)*memberModulus>>32) + memberOffset
}

// jhash is Bob Jenkins' lookup3 hash as the kernel computes it
// (linux/jhash.h, jhash) of keys whose length is a multiple of four.
func jhash(key []byte, seed uint32) uint32 {
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(key[4*i:]) }
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	for len(key) > 12 {
		a, b, c = a+word(0), b+word(1), c+word(2)
		a, b, c = jhashMix(a, b, c)
		key = key[12:]
	}
	if len(key) == 0 {
		return c
	}
	// The tail is added up by bytes, the lowest first, on every machine.
	var tail [3]uint32
	for i, v := range key {
		tail[i/4] += uint32(v) << (8 * (i % 4))
	}
	return jhashFinal(a+tail[0], b+tail[1], c+tail[2])
}

func jhashMix(a, b, c uint32) (uint32, uint32, uint32) {
	rol := bits.RotateLeft32
	a, c = (a-c)^rol(c, 4), c+b
	b, a = (b-a)^rol(a, 6), a+c
	c, b = (c-b)^rol(b, 8), b+a
	a, c = (a-c)^rol(c, 16), c+b
	b, a = (b-a)^rol(a, 19), a+c
	c, b = (c-b)^rol(b, 4), b+a
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	rol := bits.RotateLeft32
	c = (c ^ b) - rol(b, 14)
	a = (a ^ c) - rol(c, 11)
	b = (b ^ a) - rol(a, 25)
	c = (c ^ b) - rol(b, 16)
	a = (a ^ c) - rol(c, 4)
	b = (b ^ a) - rol(a, 14)
	return (c ^ b) - rol(b, 24)
}
