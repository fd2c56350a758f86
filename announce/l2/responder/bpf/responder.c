// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The answers to ARP requests and neighbor solicitations for addresses that this
// node owns on a link, at the ingress of the link's interface: also while no agent
// runs. docs/decisions/0005-answers-in-the-kernel.md says when it has to be silent.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define __always_inline inline __attribute__((always_inline))

#include "vlan.h"

// What the agent says of itself, each time that it sends adverts.
struct self {
	__u64 refreshed;   // when, by CLOCK_BOOTTIME; 0 before the first time
	__u64 incarnation; // of the agent's adverts
	__u64 away;        // the agent is away if it didn't say anything for as long
	__u64 limit;       // and other nodes may take over after that
	__u8 mac[ETH_ALEN];
	__u8 unused[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct self);
} self_1 SEC(".maps");

struct address {
	__u8 bytes[16]; // IPv4 as ::ffff:a.b.c.d
};

struct owned {
	__u32 epoch; // of the node's claim
	__u32 unused;
	__u64 answers;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, struct address);
	__type(value, struct owned);
} owned_1 SEC(".maps");

// How many questions of other nodes were answered: the agent says that they are only if some were.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} asked_1 SEC(".maps");

struct arp {
	__be16 hardware, protocol;
	__u8 hardware_length, protocol_length;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN], sender[4], target_mac[ETH_ALEN], target[4];
} __attribute__((packed));

struct arp_frame {
	struct ethhdr eth;
	struct arp arp;
} __attribute__((packed));

// A solicitation, or an advertisement up to its option.
struct ndp {
	__u8 type, code;
	__be16 checksum;
	__u8 flags, reserved[3];
	struct address target;
};

// Without the Ethernet header, which would have the rest begin at an odd place.
struct ndp_packet {
	struct ipv6hdr ip;
	struct ndp ndp;
};

struct ndp_answer {
	struct ipv6hdr ip;
	struct ndp ndp;
	__u8 option, units, mac[ETH_ALEN];
};

enum {
	SOLICITATION = 135,
	ADVERTISEMENT = 136,
	TARGET_OPTION = 2,
	SOLICITED = 1 << 6,
	OVERRIDE = 1 << 5,
	ICMPV6 = 58,
	ADVERTS = 0x88b5,
	MOST_OPTIONS = 64,
};

// away reports whether the agent is; past whether that has been so for too long.
static __always_inline int away(const struct self *s) { return bpf_ktime_get_boot_ns() - s->refreshed > s->away; }
static __always_inline int past(const struct self *s) { return bpf_ktime_get_boot_ns() - s->refreshed > s->limit; }

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	__u8 differs = 0;

	for (int i = 0; i < ETH_ALEN; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

static __always_inline int send_back(struct __sk_buff *skb, struct owned *o)
{
	if (o)
		__sync_fetch_and_add(&o->answers, 1);
	return bpf_redirect(skb->ifindex, 0);
}

// taken ends the answers for an address that another machine says it has. Only while
// the agent is away, which otherwise decides that itself.
static __always_inline void taken(const struct self *s, const struct address *a)
{
	if (away(s))
		bpf_map_delete_elem(&owned_1, a);
}

static __always_inline int answer_arp(struct __sk_buff *skb, const struct self *s)
{
	struct arp_frame f;
	struct address a = { .bytes = { [10] = 0xff, [11] = 0xff } };
	struct owned *o;

	if (bpf_skb_load_bytes(skb, 0, &f, sizeof(f)) < 0)
		return TC_ACT_UNSPEC;
	if (f.arp.hardware != bpf_htons(1) || f.arp.protocol != bpf_htons(ETH_P_IP) || f.arp.hardware_length != ETH_ALEN ||
	    f.arp.protocol_length != 4 || same_mac(f.arp.sender_mac, s->mac))
		return TC_ACT_UNSPEC;
	__builtin_memcpy(&a.bytes[12], f.arp.sender, 4);
	taken(s, &a);
	if (f.arp.operation != bpf_htons(1))
		return TC_ACT_UNSPEC;
	// A gratuitous request is no question; the agent learns of the conflict.
	if (!__builtin_memcmp(f.arp.sender, f.arp.target, 4))
		return TC_ACT_UNSPEC;
	__builtin_memcpy(&a.bytes[12], f.arp.target, 4);
	o = bpf_map_lookup_elem(&owned_1, &a);
	if (!o)
		return TC_ACT_UNSPEC;
	// Nodes ask so before they take over.
	if (!(f.arp.sender[0] | f.arp.sender[1] | f.arp.sender[2] | f.arp.sender[3]) && past(s))
		return TC_ACT_UNSPEC;
	__builtin_memcpy(f.eth.h_dest, f.arp.sender_mac, ETH_ALEN);
	__builtin_memcpy(f.eth.h_source, s->mac, ETH_ALEN);
	__builtin_memcpy(f.arp.target_mac, f.arp.sender_mac, ETH_ALEN);
	__builtin_memcpy(f.arp.target, f.arp.sender, 4);
	__builtin_memcpy(f.arp.sender_mac, s->mac, ETH_ALEN);
	__builtin_memcpy(f.arp.sender, &a.bytes[12], 4);
	f.arp.operation = bpf_htons(2);
	if (bpf_skb_store_bytes(skb, 0, &f, sizeof(f), 0) < 0)
		return TC_ACT_UNSPEC;
	return send_back(skb, o);
}

static __always_inline __u16 fold(__s64 sum)
{
	__u32 s = sum;

	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return s;
}

// pseudo sums up what ICMPv6's checksum has of the header (RFC 8200, 8.1).
static __always_inline __s64 pseudo(struct ipv6hdr *ip, __u32 length)
{
	__be32 rest[2] = { bpf_htonl(length), bpf_htonl(ICMPV6) };
	__be32 addresses[8];
	__s64 sum;

	__builtin_memcpy(addresses, &ip->saddr, sizeof(addresses));
	sum = bpf_csum_diff(NULL, 0, addresses, sizeof(addresses), 0);
	return bpf_csum_diff(NULL, 0, rest, sizeof(rest), sum);
}

// sound reports whether the checksum of a solicitation is right.
static __always_inline int sound(struct __sk_buff *skb, struct ipv6hdr *ip, __u32 length)
{
	__s64 sum = pseudo(ip, length);
	__be32 words[2];

	for (__u32 at = 0; at < sizeof(struct ndp) + MOST_OPTIONS; at += sizeof(words)) {
		if (at >= length)
			break;
		if (bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(*ip) + at, words, sizeof(words)) < 0)
			return 0;
		sum = bpf_csum_diff(NULL, 0, words, sizeof(words), sum);
	}
	return fold(sum) == 0xffff;
}

static __always_inline int is_unspecified(const struct in6_addr *a)
{
	return !(a->s6_addr32[0] | a->s6_addr32[1] | a->s6_addr32[2] | a->s6_addr32[3]);
}

static __always_inline int answer_ndp(struct __sk_buff *skb, const struct self *s)
{
	struct ndp_answer r = {};
	struct ndp_packet p;
	struct ethhdr eth;
	__be32 words[8];
	struct owned *o;
	__u32 length;

	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) < 0 || bpf_skb_load_bytes(skb, ETH_HLEN, &p, sizeof(p)) < 0)
		return TC_ACT_UNSPEC;
	length = bpf_ntohs(p.ip.payload_len);
	if (p.ip.version != 6 || p.ip.nexthdr != ICMPV6 || p.ip.hop_limit != 255 || p.ndp.code || length < sizeof(p.ndp) ||
	    length > sizeof(p.ndp) + MOST_OPTIONS || length % 8 || same_mac(eth.h_source, s->mac))
		return TC_ACT_UNSPEC;
	if (p.ndp.type != SOLICITATION && p.ndp.type != ADVERTISEMENT)
		return TC_ACT_UNSPEC;
	o = bpf_map_lookup_elem(&owned_1, &p.ndp.target);
	if (!o || !sound(skb, &p.ip, length))
		return TC_ACT_UNSPEC;
	if (p.ndp.type == ADVERTISEMENT) {
		taken(s, &p.ndp.target);
		return TC_ACT_UNSPEC;
	}
	r.ip.version = 6;
	r.ip.payload_len = bpf_htons(sizeof(r.ndp) + 8);
	r.ip.nexthdr = ICMPV6;
	r.ip.hop_limit = 255;
	__builtin_memcpy(&r.ip.saddr, &p.ndp.target, 16);
	r.ndp.type = ADVERTISEMENT;
	r.ndp.flags = OVERRIDE;
	r.ndp.target = p.ndp.target;
	r.option = TARGET_OPTION;
	r.units = 1;
	__builtin_memcpy(r.mac, s->mac, ETH_ALEN);
	if (is_unspecified(&p.ip.saddr)) { // asks for duplicates: all are told (RFC 4861, 7.2.4)
		if (past(s))
			return TC_ACT_UNSPEC;
		__builtin_memset(eth.h_dest, 0, ETH_ALEN);
		eth.h_dest[0] = eth.h_dest[1] = 0x33;
		eth.h_dest[5] = 1;
		r.ip.daddr.s6_addr32[0] = bpf_htonl(0xff020000);
		r.ip.daddr.s6_addr32[3] = bpf_htonl(1);
	} else {
		r.ndp.flags |= SOLICITED;
		__builtin_memcpy(eth.h_dest, eth.h_source, ETH_ALEN);
		r.ip.daddr = p.ip.saddr;
	}
	__builtin_memcpy(eth.h_source, s->mac, ETH_ALEN);
	__builtin_memcpy(words, &r.ndp, sizeof(words));
	r.ndp.checksum = ~fold(bpf_csum_diff(NULL, 0, words, sizeof(words), pseudo(&r.ip, sizeof(words))));
	if (bpf_skb_change_tail(skb, ETH_HLEN + sizeof(r), 0) < 0 || bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0) < 0 ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, &r, sizeof(r), 0) < 0)
		return TC_ACT_SHOT;
	return send_back(skb, o);
}

// What agents send each other: announce/link/frame.go, announce/l2/advert.go and announce/link/question.go.
enum {
	MAGIC_ADVERT = 0x46574c32,   // "FWL2"
	MAGIC_QUESTION = 0x46574c51, // "FWLQ"
	ADVERT_VERSION = 2,
	VERSION = 1, // of questions
	HEAD = 34,   // bytes before the length of the node's name
	QUESTION = 1,
	ANSWER = 2,
	MOST_ENTRIES = 36,
	FLAG_OWNER = 1 << 1,
	FLAG_IPV6 = 1 << 2,
	FLAG_PROBING = 1 << 3,
	ENTRY = 9, // bytes before the address
};

struct question {
	__be32 magic;
	__u8 version, kind, unused[2];
	__u64 nonce;
	__be64 incarnation;
} __attribute__((packed));

struct question_frame {
	struct ethhdr eth;
	struct question q;
} __attribute__((packed));

// answer_node tells another node that there are still answers here, in the name of
// the agent that gave the last word.
static __always_inline int answer_node(struct __sk_buff *skb, const struct self *s)
{
	struct question_frame f;
	__u32 zero = 0;
	__u64 *asked;

	if (bpf_skb_load_bytes(skb, 0, &f, sizeof(f)) < 0)
		return TC_ACT_UNSPEC;
	if (f.q.version != VERSION || f.q.kind != QUESTION || !same_mac(f.eth.h_dest, s->mac) || past(s))
		return TC_ACT_UNSPEC;
	__builtin_memcpy(f.eth.h_dest, f.eth.h_source, ETH_ALEN);
	__builtin_memcpy(f.eth.h_source, s->mac, ETH_ALEN);
	f.q.kind = ANSWER;
	f.q.incarnation = bpf_cpu_to_be64(s->incarnation);
	asked = bpf_map_lookup_elem(&asked_1, &zero);
	if (asked)
		__sync_fetch_and_add(asked, 1);
	if (bpf_skb_store_bytes(skb, 0, &f, sizeof(f), 0) < 0)
		return TC_ACT_UNSPEC;
	return send_back(skb, NULL);
}

// give_way ends the answers for addresses that another node says it owns, while the
// agent is away.
static __always_inline void give_way(struct __sk_buff *skb)
{
	__u32 at = ETH_HLEN + HEAD;
	__u8 length, count, flags;

	if (bpf_skb_load_bytes(skb, at, &length, 1) < 0)
		return;
	at += 1 + length;
	if (bpf_skb_load_bytes(skb, at, &count, 1) < 0)
		return;
	at++;
	for (int i = 0; i < MOST_ENTRIES; i++) {
		struct address a = {};

		if (i >= count || bpf_skb_load_bytes(skb, at, &flags, 1) < 0)
			return;
		if (flags & FLAG_IPV6) {
			if (bpf_skb_load_bytes(skb, at + ENTRY, a.bytes, 16) < 0)
				return;
			at += ENTRY + 16;
		} else {
			a.bytes[10] = a.bytes[11] = 0xff;
			if (bpf_skb_load_bytes(skb, at + ENTRY, &a.bytes[12], 4) < 0)
				return;
			at += ENTRY + 4;
		}
		if (flags & FLAG_OWNER && !(flags & FLAG_PROBING))
			bpf_map_delete_elem(&owned_1, &a);
	}
}

static __always_inline int hear_node(struct __sk_buff *skb, const struct self *s)
{
	struct {
		struct ethhdr eth;
		__be32 magic;
		__u8 version, flags;
	} __attribute__((packed)) head;

	if (bpf_skb_load_bytes(skb, 0, &head, sizeof(head)) < 0 || same_mac(head.eth.h_source, s->mac))
		return TC_ACT_UNSPEC;
	if (head.magic == bpf_htonl(MAGIC_QUESTION))
		return answer_node(skb, s);
	if (head.magic == bpf_htonl(MAGIC_ADVERT) && head.version == ADVERT_VERSION && !(head.flags & 1) && away(s))
		give_way(skb);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int respond(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct self *s = bpf_map_lookup_elem(&self_1, &zero);

	if (!s || !s->refreshed || is_tagged(skb) || skb->pkt_type == PACKET_OTHERHOST)
		return TC_ACT_UNSPEC;
	switch (skb->protocol) {
	case bpf_htons(ETH_P_ARP):
		return answer_arp(skb, s);
	case bpf_htons(ETH_P_IPV6):
		return answer_ndp(skb, s);
	case bpf_htons(ADVERTS):
		return hear_node(skb, s);
	}
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
