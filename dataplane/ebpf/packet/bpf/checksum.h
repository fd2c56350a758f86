// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Checksums of packets that the programs make (RFC 1071).
#pragma once

#include "packet.h"

static __always_inline __u16 folded(__s64 sum)
{
	__u64 s = (__u32)sum;

	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return s;
}

// pseudo adds up the pseudo-header (RFC 8200, section 8.1; that of IPv4 comes
// to the same, since what addresses are mapped with adds nothing).
static __always_inline __s64 pseudo(const struct tuple *t, __u32 proto, __u32 len, __s64 sum)
{
	__be32 rest[2] = {bpf_htonl(len), bpf_htonl(proto)};

	sum = bpf_csum_diff(NULL, 0, (__be32 *)t, 2 * sizeof(struct address), sum);
	return bpf_csum_diff(NULL, 0, rest, sizeof(rest), sum);
}

// unfinished reports whether the checksum at an offset is still to be computed
// by whoever sends the packet out (CHECKSUM_PARTIAL), as in packets of this
// machine's own pods. Of such a checksum bpf_l4_csum_replace leaves alone what
// is not of the pseudo-header: that tells it.
static __always_inline int unfinished(struct __sk_buff *skb, __u32 at)
{
	__u16 before, after;

	if (bpf_skb_load_bytes(skb, at, &before, sizeof(before)) ||
	    bpf_l4_csum_replace(skb, at, 0, 1, sizeof(__u32)) ||
	    bpf_skb_load_bytes(skb, at, &after, sizeof(after)))
		return 0;
	if (before == after)
		return 1;
	bpf_skb_store_bytes(skb, at, &before, sizeof(before), 0);
	return 0;
}

static __always_inline __u32 ip_header_size(int v6) { return v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr); }

// write_ip writes the IP header of a new packet that looks like t.
static __always_inline int write_ip(struct __sk_buff *skb, __u32 l3, int v6, const struct tuple *t, __u8 proto, __u32 len)
{
	union ip_header h = {};

	if (v6) {
		h.v6.version = 6;
		h.v6.payload_len = bpf_htons(len);
		h.v6.nexthdr = proto;
		h.v6.hop_limit = 64;
		__builtin_memcpy(&h.v6.saddr, t, 2 * sizeof(struct address));
		return bpf_skb_store_bytes(skb, l3, &h.v6, sizeof(h.v6), 0);
	}
	h.v4.version = 4;
	h.v4.ihl = 5;
	h.v4.tot_len = bpf_htons(sizeof(h.v4) + len);
	h.v4.ttl = 64;
	h.v4.protocol = proto;
	h.v4.saddr = t->src.word[3];
	h.v4.daddr = t->dst.word[3];
	h.v4.check = ~folded(bpf_csum_diff(NULL, 0, h.words, sizeof(h.v4), 0));
	return bpf_skb_store_bytes(skb, l3, &h.v4, sizeof(h.v4), 0);
}
