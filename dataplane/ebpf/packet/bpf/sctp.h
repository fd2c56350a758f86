// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// SCTP's checksum (RFC 9260, appendix A) is a CRC over the whole packet, but a
// CRC is linear: other ports change it by the CRC of what is different about
// them with nothing but zeros behind, and that is a power of x.
#pragma once

#include "types.h"

#define CRC32C 0x82f63b78 // the polynomial, lowest bit first

// sctp_powers are x^(8·2^k) modulo the polynomial: 2^k bytes of zeros.
static const __u32 sctp_powers[16] = {
	0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c,
	0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
	0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a,
	0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
};

// sctp_times multiplies polynomials. A function of its own and without branches,
// so that the verifier goes through it once.
__noinline __u32 sctp_times(__u32 a, __u32 b)
{
	__u32 product = 0;

	for (int i = 0; i < 32; i++) {
		product ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (CRC32C & -(b & 1));
	}
	return product;
}

// sctp_difference is what to XOR to the checksum of a packet of len bytes if
// its first four bytes, the ports, are XORed with ports. Both are as in memory.
__noinline __u32 sctp_difference(__u32 ports, __u32 len)
{
	__u32 d = ports;

	for (int k = 0; k < 16; k++) {
		__u32 times = sctp_times(d, sctp_powers[k]);
		__u32 mask = -(len >> k & 1);
		d = (times & mask) | (d & ~mask);
	}
	return d;
}
