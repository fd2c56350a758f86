// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// ICMP errors, path-MTU ones among them, go back the way of the packet that
// they are about: what they quote, and whom they are for, is translated as
// that packet was, backwards.
#pragma once

#include "option.h"
#include "rewrite.h"

static __always_inline int is_error(const struct packet *p)
{
	if (p->v6) // RFC 4443, section 2.1: 1 to 127
		return p->icmp >= ICMPV6_DEST_UNREACH && p->icmp <= ICMPV6_PARAMPROB;
	return p->icmp == ICMP_DEST_UNREACH || p->icmp == ICMP_TIME_EXCEEDED || p->icmp == ICMP_PARAMETERPROB;
}

// parse_quoted reads the packet that an error quotes, of which 8 bytes behind
// the IP header are sure to be there.
static __always_inline int parse_quoted(struct __sk_buff *skb, const struct packet *p, struct packet *q)
{
	__u32 ports;

	if (!parse_ip(skb, p->l4 + 8, p->v6, q) || q->fragment == LATER_FRAGMENT || !has_ports(q->t.proto) ||
	    bpf_skb_load_bytes(skb, q->l4, &ports, sizeof(ports)))
		return 0;
	q->t.sport = ports;
	q->t.dport = ports >> 16;
	return 1;
}

// rewrite_quoted gives the quoted packet q other addresses and ports, and adds
// to diff what that makes of the checksum of the error.
static __always_inline int rewrite_quoted(struct __sk_buff *skb, const struct packet *q, const struct tuple *to, __s64 *diff)
{
	__u32 old = ports_of(&q->t), new = ports_of(to);
	__be32 ip4[2] = {to->src.word[3], to->dst.word[3]};
	__s64 addresses = address_difference(&q->t, to);

	*diff = bpf_csum_diff(&old, sizeof(old), &new, sizeof(new), 0);
	if (bpf_skb_store_bytes(skb, q->l4, &new, sizeof(new), 0))
		return -1;
	if (!q->v6) // the header's checksum makes up for the addresses
		return bpf_l3_csum_replace(skb, q->l3 + offsetof(struct iphdr, check), 0, addresses, 0) ||
		       bpf_skb_store_bytes(skb, q->l3 + offsetof(struct iphdr, saddr), ip4, sizeof(ip4), 0);
	*diff = bpf_csum_diff(&old, sizeof(old), &new, sizeof(new), addresses);
	return bpf_skb_store_bytes(skb, q->l3 + offsetof(struct ipv6hdr, saddr), to, 2 * sizeof(struct address), 0);
}

// leave_room makes an error about the size of a packet speak of one that leaves
// room for the option, which the client doesn't know of.
static __always_inline int leave_room(struct __sk_buff *skb, const struct packet *p, const struct packet *q)
{
	struct {
		__u8 type, code;
		__u16 check;
		__be32 mtu; // of IPv4 the lower half
	} e;
	__u32 mtu, size = option_size(p->v6);
	struct tuple answer;
	__be32 less;

	if (bpf_skb_load_bytes(skb, p->l4, &e, sizeof(e)) || !read_option(skb, q, &answer))
		return 0;
	if (p->v6 ? e.type != ICMPV6_PKT_TOOBIG : e.type != ICMP_DEST_UNREACH || e.code != ICMP_FRAG_NEEDED)
		return 0;
	mtu = bpf_ntohl(e.mtu);
	if ((p->v6 ? mtu : mtu & 0xffff) <= size)
		return 0;
	less = bpf_htonl(mtu - size);
	return bpf_l4_csum_replace(skb, p->l4 + ICMP_CHECKSUM, e.mtu, less, sizeof(less)) ||
	       bpf_skb_store_bytes(skb, p->l4 + offsetof(typeof(e), mtu), &less, sizeof(less), 0);
}

// translate_error translates an ICMP error about a connection in the table. It
// returns a negative number if the packet is spoilt.
__noinline int translate_error(struct __sk_buff *skb)
{
	struct work *w = work();
	struct packet *p, *q;
	struct conn *c;
	__s64 diff;

	if (!w)
		return 0;
	p = &w->p;
	q = &w->quoted;
	__builtin_memset(q, 0, sizeof(*q));
	if (!parse_quoted(skb, p, q))
		return 0;
	w->key = reversed(&q->t);
	w->key.hook = p->t.hook;
	c = conn_of(&w->key);
	if (!c || is_netfilters(c))
		return 0;
	w->key = reversed(&c->to); // as the quoted packet was
	w->to = p->t;
	w->to.dst = w->key.src;
	if (same_address(&p->t.src, &q->t.dst)) // says the other end itself
		w->to.src = w->key.dst;
	if (kind_of(c) == SENT_ANSWERS && leave_room(skb, p, q))
		return -1;
	if (rewrite_quoted(skb, q, &w->key, &diff) || bpf_l4_csum_replace(skb, p->l4 + ICMP_CHECKSUM, 0, diff, 0))
		return -1;
	diff = address_difference(&p->t, &w->to);
	if (p->v6 && bpf_l4_csum_replace(skb, p->l4 + ICMP_CHECKSUM, 0, diff, BPF_F_PSEUDO_HDR))
		return -1;
	return store_addresses(skb, p->l3, p->v6, &w->to, diff);
}
