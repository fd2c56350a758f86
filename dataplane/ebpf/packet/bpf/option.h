// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The option of the IP header by which nodes tell each other of direct server
// return (direct.h): how it is read, put in and taken off.
#pragma once

#include "checksum.h"
#include "conn.h"

// For experiments: RFC 4727, sections 3.2 and 3.4. In IPv6 this type says that
// who doesn't know the option skips it (RFC 8200, section 4.2), as hosts do in
// IPv4 (RFC 1122, section 3.2.1.8).
#define DIRECT_OPTION 30
#define DIRECT_MAGIC 0xfa17 // tells it from others' experiments

// The same, of packets about which no other node is to be asked: see stray.h.
#define LAST_OPTION 62 // IPv6's
#define LAST_MAGIC 0xfa18

// The option goes right behind the IP header's fixed part.
struct option4 {
	__u8 type, len;
	__be16 magic;
	__be32 addr; // the frontend's
	__be16 port, client; // and the client's port, which the backend may see another one of
};

struct option6 {
	__u8 next, words; // the extension header's
	__u8 type, len;
	struct address addr;
	__be16 port, client;
};

static __always_inline __u32 option_size(int v6) { return v6 ? sizeof(struct option6) : sizeof(struct option4); }

#define ROOM_FLAGS (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

// read_option reads the option of a packet, if it has one, into the tuple that
// answers shall have. It returns 0 if there is none, or which it is.
enum option { NO_OPTION, ANY_OPTION, THE_LAST_OPTION };

static __always_inline int read_option(struct __sk_buff *skb, const struct packet *p, struct tuple *answer)
{
	int last;

	if (p->l4 - p->l3 < ip_header_size(p->v6) + option_size(p->v6))
		return NO_OPTION;
	if (p->v6) {
		struct option6 o;
		__u8 next;

		if (bpf_skb_load_bytes(skb, p->l3 + offsetof(struct ipv6hdr, nexthdr), &next, 1) || next != IPPROTO_DSTOPTS ||
		    bpf_skb_load_bytes(skb, p->l3 + sizeof(struct ipv6hdr), &o, sizeof(o)) ||
		    o.words != sizeof(o) / 8 - 1 || (o.type != DIRECT_OPTION && o.type != LAST_OPTION) || o.len != sizeof(o) - 4)
			return NO_OPTION;
		last = o.type == LAST_OPTION;
		answer->src = o.addr;
		answer->sport = o.port;
		answer->dport = o.client;
	} else {
		struct option4 o;

		if (bpf_skb_load_bytes(skb, p->l3 + sizeof(struct iphdr), &o, sizeof(o)) ||
		    o.type != DIRECT_OPTION || o.len != sizeof(o) || (o.magic != bpf_htons(DIRECT_MAGIC) && o.magic != bpf_htons(LAST_MAGIC)))
			return NO_OPTION;
		last = o.magic == bpf_htons(LAST_MAGIC);
		answer->src = mapped(o.addr);
		answer->sport = o.port;
		answer->dport = o.client;
	}
	answer->dst = p->t.src;
	answer->proto = p->t.proto;
	answer->hook = 0;
	return last ? THE_LAST_OPTION : ANY_OPTION;
}

// lengthen changes what IPv4's fixed header says of the packet's length and its
// own, for an option whose bytes turn from old into new.
static __always_inline int lengthen(struct __sk_buff *skb, __u32 l3, int by, const struct option4 *old, const struct option4 *new)
{
	__be32 was, is;
	__s64 diff;
	struct {
		__u8 version, tos;
		__be16 len;
	} h;

	if (bpf_skb_load_bytes(skb, l3, &h, sizeof(h)))
		return -1;
	__builtin_memcpy(&was, &h, sizeof(was));
	h.version += by / 4;
	h.len = bpf_htons(bpf_ntohs(h.len) + by);
	__builtin_memcpy(&is, &h, sizeof(is));
	diff = bpf_csum_diff(&was, sizeof(was), &is, sizeof(is), 0);
	diff = bpf_csum_diff((__be32 *)old, sizeof(*old), (__be32 *)new, sizeof(*new), diff);
	return bpf_l3_csum_replace(skb, l3 + offsetof(struct iphdr, check), 0, diff, 0) ||
	       bpf_skb_store_bytes(skb, l3, &h, sizeof(h), 0) ||
	       bpf_skb_store_bytes(skb, l3 + sizeof(struct iphdr), new, sizeof(*new), 0);
}

// announce4 puts the option into an IPv4 packet; front is what it looked like.
static __always_inline int announce4(struct __sk_buff *skb, __u32 l3, const struct tuple *front, int last)
{
	struct option4 none = {}, o = {
		.type = DIRECT_OPTION, .len = sizeof(o), .magic = last ? bpf_htons(LAST_MAGIC) : bpf_htons(DIRECT_MAGIC),
		.addr = front->dst.word[3], .port = front->dport, .client = front->sport,
	};
	__u8 version;

	if (bpf_skb_load_bytes(skb, l3, &version, 1) || (version & 15) > 15 - sizeof(o) / 4)
		return -1; // there is no room among other options
	return bpf_skb_adjust_room(skb, sizeof(o), BPF_ADJ_ROOM_NET, ROOM_FLAGS) || lengthen(skb, l3, sizeof(o), &none, &o);
}

// resize6 changes what the IPv6 header says of the packet's length, and what
// comes next.
static __always_inline int resize6(struct __sk_buff *skb, __u32 l3, int by, __u8 next)
{
	__u32 at = l3 + offsetof(struct ipv6hdr, payload_len);
	struct {
		__be16 len;
		__u8 next, hops;
	} h;

	if (bpf_skb_load_bytes(skb, at, &h, sizeof(h)))
		return -1;
	h.len = bpf_htons(bpf_ntohs(h.len) + by);
	h.next = next;
	return bpf_skb_store_bytes(skb, at, &h, sizeof(h), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int announce6(struct __sk_buff *skb, __u32 l3, const struct tuple *front, int last)
{
	struct option6 o = {
		.words = sizeof(o) / 8 - 1, .type = last ? LAST_OPTION : DIRECT_OPTION, .len = sizeof(o) - 4,
		.addr = front->dst, .port = front->dport, .client = front->sport,
	};

	return bpf_skb_load_bytes(skb, l3 + offsetof(struct ipv6hdr, nexthdr), &o.next, 1) ||
	       bpf_skb_adjust_room(skb, sizeof(o), BPF_ADJ_ROOM_NET, ROOM_FLAGS) ||
	       resize6(skb, l3, sizeof(o), IPPROTO_DSTOPTS) ||
	       bpf_skb_store_bytes(skb, l3 + sizeof(struct ipv6hdr), &o, sizeof(o), BPF_F_RECOMPUTE_CSUM);
}

// strip takes the option off. It makes zeros of it first, which no checksum over
// the packet misses.
static __always_inline int strip(struct __sk_buff *skb, struct packet *p)
{
	__u32 l3 = p->l3, size = option_size(p->v6);

	if (p->v6) {
		struct option6 none = {}, o;

		if (bpf_skb_load_bytes(skb, l3 + sizeof(struct ipv6hdr), &o, sizeof(o)) ||
		    resize6(skb, l3, -(int)sizeof(o), o.next) ||
		    bpf_skb_store_bytes(skb, l3 + sizeof(struct ipv6hdr), &none, sizeof(none), BPF_F_RECOMPUTE_CSUM))
			return -1;
	} else {
		struct option4 none = {}, o;

		if (bpf_skb_load_bytes(skb, l3 + sizeof(struct iphdr), &o, sizeof(o)) ||
		    lengthen(skb, l3, -(int)sizeof(o), &o, &none))
			return -1;
	}
	p->l4 -= size;
	p->len -= size;
	return bpf_skb_adjust_room(skb, -(int)size, BPF_ADJ_ROOM_NET, ROOM_FLAGS);
}
