// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// What the program at drivers (xdp.h) reads of frames and writes into them, which are in
// memory from data to end.
#pragma once

#include "checksum.h"
#include "option.h"

enum uplink_flags {
	TAKES = 1,      // packets that come in here are handled by the program
	SENDS = 2,      // its driver sends frames that the program redirects to it
	VETH = 4,       // its other end is on this machine: frames may come in whose checksum nobody has computed
};

// An interface whose driver runs the program, or sends for it.
struct uplink {
	__u8 mac[ETH_ALEN];
	__u16 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 10);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks SEC(".maps");

// What drivers have done with packets: see xdp.go.
enum driver_count { SENT, DRIVEN };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DRIVEN);
	__type(key, __u32);
	__type(value, __u64);
} driven SEC(".maps");

static __always_inline void count_driven(enum driver_count what)
{
	__u32 k = what;
	__u64 *n = bpf_map_lookup_elem(&driven, &k);

	if (n)
		(*n)++;
}

static __always_inline struct uplink *uplink_of(__u32 ifindex) { return bpf_map_lookup_elem(&uplinks, &ifindex); }

static __always_inline int is_for(const __u8 *frame, const struct uplink *u)
{
	return !((*(__u32 *)frame ^ *(__u32 *)u->mac) | (*(__u16 *)(frame + 4) ^ *(__u16 *)(u->mac + 4)));
}

// struct headers are those of the frames that the program handles.
struct headers {
	struct ethhdr *eth;
	struct iphdr *v4;
	struct ipv6hdr *v6; // or this
	void *l4;
	__u16 *check; // of TCP or UDP
};

// find_l4 reads what follows an IP header.
static __always_inline int find_l4(void *l4, void *end, struct headers *h, struct packet *p)
{
	h->l4 = l4;
	if (p->t.proto == IPPROTO_TCP) {
		struct tcphdr *t = l4;

		if ((void *)(t + 1) > end)
			return 0;
		h->check = &t->check;
		p->step = tcp_step(((__u8 *)l4)[13]);
		p->seq = bpf_ntohl(t->seq) >> 16;
		p->ack = bpf_ntohl(t->ack_seq) >> 16;
		p->t.sport = t->source;
		p->t.dport = t->dest;
		return 1;
	}
	if (p->t.proto == IPPROTO_UDP) {
		struct udphdr *u = l4;

		if ((void *)(u + 1) > end)
			return 0;
		h->check = &u->check;
		p->t.sport = u->source;
		p->t.dport = u->dest;
		return 1;
	}
	return 0;
}

// find_headers reads a frame of a family. It returns 0 if that is none of TCP or UDP over
// plain IP which may be forwarded: with options or extension headers, in fragments, at its
// last hop.
static __always_inline int find_headers(void *data, void *end, int v6, struct headers *h, struct packet *p)
{
	struct iphdr *v4 = h->v4 = data + ETH_HLEN;
	struct ipv6hdr *ip = h->v6 = data + ETH_HLEN;

	h->eth = data;
	p->l3 = ETH_HLEN;
	p->v6 = v6;
	p->l4 = ETH_HLEN + ip_header_size(v6);
	if (!v6) {
		if ((void *)(v4 + 1) > end || *(__u8 *)v4 != 0x45 || v4->frag_off & bpf_htons(IP_FRAGMENT) || v4->ttl <= 1)
			return 0;
		p->t.src = mapped(v4->saddr);
		p->t.dst = mapped(v4->daddr);
		p->t.proto = v4->protocol;
		p->len = bpf_ntohs(v4->tot_len);
		return find_l4(v4 + 1, end, h, p);
	}
	if ((void *)(ip + 1) > end || ip->version != 6 || ip->hop_limit <= 1)
		return 0;
	__builtin_memcpy(&p->t.src, &ip->saddr, sizeof(p->t.src));
	__builtin_memcpy(&p->t.dst, &ip->daddr, sizeof(p->t.dst));
	p->t.proto = ip->nexthdr;
	p->len = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	return find_l4(ip + 1, end, h, p);
}

// is_unfinished reports whether a frame has a checksum of the pseudo-header only, as those
// of this machine that no network card has seen. A finished one may look alike by chance.
static __always_inline int is_unfinished(const struct headers *h, const struct packet *p, int v6)
{
	__u64 s = bpf_htonl(p->len - (p->l4 - p->l3)) + (__u64)bpf_htonl(p->t.proto);

#pragma unroll
	for (int i = 0; i < 4; i++)
		s += (__u64)p->t.src.word[i] + p->t.dst.word[i];
	if (!v6)
		s -= 2 * (__u64)bpf_htonl(0xffff);
	s = (s & 0xffffffff) + (s >> 32);
	s = (s & 0xffff) + ((s >> 16) & 0xffff) + (s >> 32);
	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return *h->check == s;
}

// sum16 folds a sum of words into one of 16 bits.
static __always_inline __u32 sum16(__u64 s)
{
	s = (s & 0xffffffff) + (s >> 32);
	s = (s & 0xffffffff) + (s >> 32);
	s = (s & 0xffff) + (s >> 16);
	return (s & 0xffff) + (s >> 16);
}

// changed corrects a checksum by a sum of differences (RFC 1624).
static __always_inline __u16 changed(__u16 check, __u64 diff)
{
	__u32 s = (__u16)~check + sum16(diff);

	s = (s & 0xffff) + (s >> 16);
	return ~((s & 0xffff) + (s >> 16));
}

static __always_inline __u64 word_difference(__be32 old, __be32 new) { return (__u64)(__u32)~old + new; }

// write_headers makes the frame look like to, one hop further.
static __always_inline void write_headers(struct headers *h, int v6, const struct tuple *old, const struct tuple *to)
{
	__u64 diff = word_difference(old->src.word[3], to->src.word[3]) + word_difference(old->dst.word[3], to->dst.word[3]);

	if (v6) {
#pragma unroll
		for (int i = 0; i < 3; i++)
			diff += word_difference(old->src.word[i], to->src.word[i]) + word_difference(old->dst.word[i], to->dst.word[i]);
		__builtin_memcpy(&h->v6->saddr, &to->src, sizeof(to->src));
		__builtin_memcpy(&h->v6->daddr, &to->dst, sizeof(to->dst));
		h->v6->hop_limit--;
	} else {
		h->v4->ttl--;
		h->v4->check = changed(h->v4->check, diff + 0xffff - bpf_htons(0x0100));
		h->v4->saddr = to->src.word[3];
		h->v4->daddr = to->dst.word[3];
	}
	diff += word_difference(ports_of(old), ports_of(to));
	*(__u32 *)h->l4 = ports_of(to);
	if (old->proto == IPPROTO_TCP) {
		*h->check = changed(*h->check, diff);
	} else if (*h->check) { // zero means none
		__u16 check = changed(*h->check, diff);

		*h->check = check ?: 0xffff;
	}
}
