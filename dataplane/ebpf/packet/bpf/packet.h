// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// What the packet path reads of a packet: addresses, ports, and where its
// headers begin. Everything is read with bpf_skb_load_bytes, which doesn't mind
// where in the buffer the bytes are.
#pragma once

#include "work.h"

#define IP_FRAGMENT 0x3fff // IPv4: more fragments, or an offset
#define IP_OFFSET 0x1fff
#define IP6_OFFSET 0xfff8
#define IP6_HEADERS 6 // how many extension headers are followed

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

// Types and codes of RFC 792 and RFC 4443. (linux/icmp.h would draw in libc.)
#define ICMP_DEST_UNREACH 3
#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_PARAMPROB 4
#define ICMPV6_PORT_UNREACH 4
#define ICMP_CHECKSUM 2 // its offset

struct ip6_extension {
	__u8 next, len;
	__be16 offset; // of a fragment
	__be32 id;
};

// parse_ip6_headers follows extension headers (RFC 8200, section 4) to the
// transport's.
static __always_inline int parse_ip6_headers(struct __sk_buff *skb, struct packet *p)
{
	struct ip6_extension x;

#pragma unroll
	for (int i = 0; i < IP6_HEADERS; i++) {
		__u8 kind = p->t.proto;

		if (kind != IPPROTO_HOPOPTS && kind != IPPROTO_ROUTING && kind != IPPROTO_DSTOPTS &&
		    kind != IPPROTO_FRAGMENT && kind != IPPROTO_AH)
			return 1;
		if (p->fragment == LATER_FRAGMENT || bpf_skb_load_bytes(skb, p->l4, &x, sizeof(x)))
			return p->fragment == LATER_FRAGMENT;
		p->t.proto = x.next;
		if (kind == IPPROTO_FRAGMENT) {
			p->fragment = x.offset & bpf_htons(IP6_OFFSET) ? LATER_FRAGMENT : FIRST_FRAGMENT;
			p->id = x.id;
			p->l4 += sizeof(x);
		} else if (kind == IPPROTO_AH) {
			p->l4 += (x.len + 2) * 4; // RFC 4302, section 2.2
		} else {
			p->l4 += (x.len + 1) * 8;
		}
	}
	return 0;
}

// parse_ip reads the IP header at an offset and those up to the transport's.
static __always_inline int parse_ip(struct __sk_buff *skb, __u32 l3, __u8 v6, struct packet *p)
{
	p->l3 = l3;
	p->v6 = v6;
	if (v6) {
		struct ipv6hdr h;

		if (bpf_skb_load_bytes(skb, l3, &h, sizeof(h)) || h.version != 6)
			return 0;
		__builtin_memcpy(&p->t.src, &h.saddr, sizeof(h.saddr));
		__builtin_memcpy(&p->t.dst, &h.daddr, sizeof(h.daddr));
		p->t.proto = h.nexthdr;
		p->len = sizeof(h) + bpf_ntohs(h.payload_len);
		p->l4 = l3 + sizeof(h);
		return parse_ip6_headers(skb, p);
	}
	struct iphdr h;

	if (bpf_skb_load_bytes(skb, l3, &h, sizeof(h)) || h.version != 4 || h.ihl < 5)
		return 0;
	p->t.src = (struct address){{0, 0, bpf_htonl(0xffff), h.saddr}};
	p->t.dst = (struct address){{0, 0, bpf_htonl(0xffff), h.daddr}};
	p->t.proto = h.protocol;
	p->len = bpf_ntohs(h.tot_len);
	p->l4 = l3 + h.ihl * 4;
	p->id = h.id;
	if (h.frag_off & bpf_htons(IP_OFFSET))
		p->fragment = LATER_FRAGMENT;
	else if (h.frag_off & bpf_htons(IP_FRAGMENT))
		p->fragment = FIRST_FRAGMENT;
	return 1;
}

static __always_inline int has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP;
}

static __always_inline int is_icmp(const struct packet *p)
{
	return p->t.proto == (p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}

static __always_inline __u8 tcp_step(__u8 flags)
{
	__u8 step = flags & TCP_ACK ? ACKS : 0;

	if (flags & TCP_SYN)
		step |= BEGINS;
	if (flags & TCP_FIN)
		step |= CLOSES;
	if (flags & TCP_RST)
		step |= RESETS;
	return step;
}

// sctp_step is of a packet's first chunk (RFC 9260, section 3.2).
static __always_inline __u8 sctp_step(__u8 chunk)
{
	switch (chunk) {
	case 1: // INIT
		return BEGINS;
	case 7: // SHUTDOWN
	case 8: // SHUTDOWN ACK
		return CLOSES | ACKS;
	case 6:  // ABORT
	case 14: // SHUTDOWN COMPLETE
		return RESETS | ACKS;
	}
	return ACKS;
}

// parse_ports reads the ports, and what TCP and SCTP say beside them.
static __always_inline int parse_ports(struct __sk_buff *skb, struct packet *p)
{
	__u8 h[14]; // UDP has 8 bytes, TCP 20, SCTP 12 and a chunk

	if (p->t.proto == IPPROTO_UDP ? bpf_skb_load_bytes(skb, p->l4, h, 8) : bpf_skb_load_bytes(skb, p->l4, h, sizeof(h)))
		return 0;
	__builtin_memcpy(&p->t.sport, h, 2);
	__builtin_memcpy(&p->t.dport, h + 2, 2);
	if (p->t.proto == IPPROTO_TCP) {
		p->step = tcp_step(h[13]);
		p->seq = h[4] << 8 | h[5];
		p->ack = h[8] << 8 | h[9];
	} else if (p->t.proto == IPPROTO_SCTP) {
		p->step = sctp_step(h[12]);
		p->ack = h[4] << 8 | h[5];
		p->reflected = p->step & RESETS && h[13] & 1;
	}
	return 1;
}

// parse reads a packet. It returns 0 if it isn't IP, or broken: such packets
// are the kernel's.
__noinline int parse(struct __sk_buff *skb, __u32 l3)
{
	struct work *w = work();
	struct packet *p;

	if (!w)
		return 0;
	p = &w->p;
	__builtin_memset(p, 0, sizeof(*p));
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	if (!parse_ip(skb, l3, skb->protocol == bpf_htons(ETH_P_IPV6), p))
		return 0;
	if (p->fragment == LATER_FRAGMENT)
		return 1;
	if (is_icmp(p))
		return !bpf_skb_load_bytes(skb, p->l4, &p->icmp, 1);
	return !has_ports(p->t.proto) || parse_ports(skb, p);
}
