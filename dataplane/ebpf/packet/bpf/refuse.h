// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Refusals, made from the packet that is refused and sent back where it came
// from: a RST for TCP, an ICMP port-unreachable error for all else.
#pragma once

#include "checksum.h"

// send_back turns the packet round at the link layer.
static __always_inline int send_back(struct __sk_buff *skb, __u32 l3)
{
	__u8 macs[2 * ETH_ALEN], turned[2 * ETH_ALEN];

	if (l3 >= ETH_HLEN) {
		if (bpf_skb_load_bytes(skb, 0, macs, sizeof(macs)))
			return TC_ACT_SHOT;
		__builtin_memcpy(turned, macs + ETH_ALEN, ETH_ALEN);
		__builtin_memcpy(turned + ETH_ALEN, macs, ETH_ALEN);
		if (bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0))
			return TC_ACT_SHOT;
	}
	return bpf_redirect(skb->ifindex, 0);
}

// reset makes a RST of a TCP segment (RFC 9293, section 3.5.2).
static __always_inline int reset(struct __sk_buff *skb, const struct packet *p)
{
	struct tuple t = reversed(&p->t);
	struct tcphdr h, r = {.source = t.sport, .dest = t.dport, .doff = 5, .rst = 1};
	int open; // the checksum is left to others
	__s64 sum;

	if (bpf_skb_load_bytes(skb, p->l4, &h, sizeof(h)) || h.rst)
		return -1;
	if (h.ack) {
		r.seq = h.ack_seq;
	} else {
		__u32 data = p->len - (p->l4 - p->l3) - h.doff * 4;
		r.ack = 1;
		r.ack_seq = bpf_htonl(bpf_ntohl(h.seq) + data + h.syn + h.fin);
	}
	open = unfinished(skb, p->l4 + offsetof(struct tcphdr, check));
	sum = pseudo(&t, IPPROTO_TCP, sizeof(r), 0);
	if (!open)
		sum = bpf_csum_diff(NULL, 0, (__be32 *)&r, sizeof(r), sum);
	r.check = open ? folded(sum) : (__u16)~folded(sum);
	if (bpf_skb_change_tail(skb, p->l4 + sizeof(r), 0) ||
	    bpf_skb_store_bytes(skb, p->l4, &r, sizeof(r), 0))
		return -1;
	return write_ip(skb, p->l3, p->v6, &t, IPPROTO_TCP, sizeof(r));
}

struct icmp_error {
	__u8 type, code;
	__u16 check;
	__be32 unused;
};

// finish puts into a quoted UDP header the checksum that it will have.
static __always_inline void finish(struct udphdr *u, __u32 len)
{
	__u16 sum = ~folded(bpf_csum_diff(NULL, 0, (__be32 *)u, len, 0));
	u->check = sum ?: 0xffff;
}

// unreachable puts the error in front of the packet, and cuts off what is too
// much. (RFC 1812, section 4.3.2.3 and RFC 4443, section 3.1 would have more of
// it; what sockets need is there.)
static __always_inline int unreachable(struct __sk_buff *skb, const struct packet *p, struct quote *q)
{
	__u32 ip = ip_header_size(p->v6), n = skb->len - p->l4, len;
	struct icmp_error e = {.type = ICMP_DEST_UNREACH, .code = ICMP_PORT_UNREACH};
	struct tuple t = reversed(&p->t);
	__s64 sum = 0;
	int open;

	if (skb->len <= p->l4)
		return -1;
	__builtin_memset(q, 0, sizeof(*q));
	n = n > QUOTED ? QUOTED : n & ~3;
	barrier_var(n);
	if (n < 8 || n > QUOTED)
		return -1;
	open = p->t.proto == IPPROTO_UDP && unfinished(skb, p->l4 + offsetof(struct udphdr, check));
	if (bpf_skb_load_bytes(skb, p->l4, q->rest, n))
		return -1;
	if (p->v6 ? bpf_skb_load_bytes(skb, p->l3, &q->ip, sizeof(q->ip.v6)) : bpf_skb_load_bytes(skb, p->l3, &q->ip, sizeof(q->ip.v4)))
		return -1;
	if (open)
		finish((struct udphdr *)q->rest, n);
	len = sizeof(e) + ip + n;
	if (p->v6) {
		e.type = ICMPV6_DEST_UNREACH;
		e.code = ICMPV6_PORT_UNREACH;
		sum = pseudo(&t, IPPROTO_ICMPV6, len, 0);
	}
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&e, sizeof(e), sum);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)q, sizeof(*q), sum); // what isn't quoted is zero
	e.check = ~folded(sum);
	if (bpf_skb_change_tail(skb, p->l4 + n, 0) || bpf_skb_adjust_room(skb, ip + sizeof(e), BPF_ADJ_ROOM_MAC, 0) ||
	    bpf_skb_store_bytes(skb, p->l3 + ip, &e, sizeof(e), 0))
		return -1;
	return write_ip(skb, p->l3, p->v6, &t, p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP, len);
}

// ERRORS_PER_SECOND is how many ICMP errors each CPU sends to others in a second, as the
// kernel limits its own (icmp_msgs_per_sec): an error is larger than a short datagram, whose
// source may be forged.
#define ERRORS_PER_SECOND 1000

struct errors {
	__u64 since; // ktime, ns
	__u64 sent;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct errors);
} errors SEC(".maps");

static __always_inline int may_send_error(void)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 only = 0;
	struct errors *e = bpf_map_lookup_elem(&errors, &only);

	if (!e)
		return 0;
	if ((__s64)(now - e->since) >= 1000000000) {
		e->since = now;
		e->sent = 0;
	}
	return e->sent++ < ERRORS_PER_SECOND;
}

// refuse answers a packet, which may be one of the node's own. The rare ones with IP options or extension headers
// get no answer.
__noinline int refuse(struct __sk_buff *skb, __u32 own)
{
	struct work *w = work();
	struct packet *p;

	if (!w)
		return TC_ACT_SHOT;
	p = &w->p;
	if (p->fragment == LATER_FRAGMENT || p->l4 - p->l3 != ip_header_size(p->v6))
		return TC_ACT_SHOT;
	if (p->t.proto != IPPROTO_TCP && !own && !may_send_error())
		return TC_ACT_SHOT;
	if (p->t.proto == IPPROTO_TCP ? reset(skb, p) : unreachable(skb, p, &w->quote))
		return TC_ACT_SHOT;
	return own ? bpf_redirect_neigh(LOOPBACK, NULL, 0, 0) : send_back(skb, p->l3);
}
