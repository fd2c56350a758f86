// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Giving a packet other addresses and ports. Checksums change by the difference
// only, so that nothing but the headers is read.
#pragma once

#include "packet.h"
#include "sctp.h"

#define SCTP_CHECKSUM 8

static __always_inline __u32 ports_of(const struct tuple *t)
{
	return (__u32)t->dport << 16 | t->sport; // as in memory
}

// checksum_at is where the transport has its ones' complement checksum.
static __always_inline __u32 checksum_at(__u8 proto)
{
	if (proto == IPPROTO_TCP)
		return offsetof(struct tcphdr, check);
	return proto == IPPROTO_UDP ? offsetof(struct udphdr, check) : 0;
}

// address_difference is of both addresses. What IPv4 addresses are mapped with
// cancels out.
static __always_inline __s64 address_difference(const struct tuple *old, const struct tuple *new)
{
	return bpf_csum_diff((__be32 *)old, 2 * sizeof(struct address), (__be32 *)new, 2 * sizeof(struct address), 0);
}

// store_addresses writes the addresses into the IP header at l3. In IPv6 no
// checksum of the header makes up for them: what a network card has added up
// must be corrected by the difference, which bpf_l4_csum_replace has taken off.
static __always_inline int store_addresses(struct __sk_buff *skb, __u32 l3, int v6, const struct tuple *to, __s64 diff)
{
	__be32 ip4[2] = {to->src.word[3], to->dst.word[3]};

	if (v6)
		return bpf_skb_store_bytes(skb, l3 + offsetof(struct ipv6hdr, saddr), to, 2 * sizeof(struct address), BPF_F_RECOMPUTE_CSUM);
	if (bpf_l3_csum_replace(skb, l3 + offsetof(struct iphdr, check), 0, diff, 0))
		return -1;
	return bpf_skb_store_bytes(skb, l3 + offsetof(struct iphdr, saddr), ip4, sizeof(ip4), 0);
}

// rewrite_sctp corrects SCTP's checksum. A zero says that the packet hasn't
// left this machine, and that whoever sends it will compute it (or that nobody
// looks: RFC 9653).
static __always_inline int rewrite_sctp(struct __sk_buff *skb, const struct packet *p, __u32 ports)
{
	__u32 sum;

	if (p->fragment != WHOLE)
		return -1; // the length isn't known, and SCTP makes no fragments
	if (bpf_skb_load_bytes(skb, p->l4 + SCTP_CHECKSUM, &sum, sizeof(sum)))
		return -1;
	if (!sum)
		return 0;
	sum ^= sctp_difference(ports, p->len - (p->l4 - p->l3));
	return bpf_skb_store_bytes(skb, p->l4 + SCTP_CHECKSUM, &sum, sizeof(sum), 0);
}

static __always_inline int rewrite_transport(struct __sk_buff *skb, const struct packet *p, const struct tuple *to, __s64 diff)
{
	__u32 old = ports_of(&p->t), new = ports_of(to), sum = checksum_at(p->t.proto);
	__u64 zero = p->t.proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0; // a zero means none

	if (sum && bpf_l4_csum_replace(skb, p->l4 + sum, 0, diff, BPF_F_PSEUDO_HDR | zero))
		return -1;
	if (old == new)
		return 0;
	if (sum && bpf_l4_csum_replace(skb, p->l4 + sum, old, new, zero | sizeof(old)))
		return -1;
	if (p->t.proto == IPPROTO_SCTP && rewrite_sctp(skb, p, old ^ new))
		return -1;
	return bpf_skb_store_bytes(skb, p->l4, &new, sizeof(new), 0);
}

// rewrite makes the packet look like work's to. It returns 0 if that went well.
__noinline int rewrite(struct __sk_buff *skb)
{
	struct work *w = work();
	__s64 diff;

	if (!w)
		return -1;
	diff = address_difference(&w->p.t, &w->to);
	if (w->p.fragment != LATER_FRAGMENT && rewrite_transport(skb, &w->p, &w->to, diff))
		return -1;
	return store_addresses(skb, w->p.l3, w->p.v6, &w->to, diff);
}
