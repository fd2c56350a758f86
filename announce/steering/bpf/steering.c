// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Leads packets of connections that did not begin at this node to the node that has them, on the
// same link: at the ingress of its interface, before the data plane. Only the frame's MACs and the
// TTL change.

#include "flow.h"

#define MOST 32 // nodes in a ring; a power of two

// Why packets of an address are led.
enum {
	HANDOFF = 0, // to the former owner of the address: a ring of one
	ROUTERS = 1, // routers send them to any node
};

struct key {
	struct address to;
	__u32 kind;
};

// The other nodes that have connections of an address, in the order that all nodes know.
struct ring {
	__u8 own[ETH_ALEN]; // the MAC of this node
	__u8 count;
	__u8 after; // the first one that comes after this node
	__u8 macs[MOST][8];
	__u64 until;     // nothing is led elsewhere after this: CLOCK_BOOTTIME, ns
	__u64 new_until; // UDP flows that show up before this are another node's
	__u64 forwarded; // packets
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, struct key);
	__type(value, struct ring);
} rings SEC(".maps");

struct mac {
	__u8 bytes[8];
};

// The other nodes on links to routers: what they send here has come in at one of them.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, struct mac);
	__type(value, __u8);
} nodes SEC(".maps");

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	__u8 differs = 0;

	for (int i = 0; i < ETH_ALEN; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

static __always_inline struct ring *ring_of(struct flow *f, __u32 kind, __u64 now)
{
	struct key k = {.to = f->to, .kind = kind};
	struct ring *r = bpf_map_lookup_elem(&rings, &k);

	return r && now <= r->until ? r : 0;
}

// lead_on leads a packet to the node at a place of a ring; if there is none, the data plane has it.
static __always_inline int lead_on(struct __sk_buff *skb, struct ring *r, __u32 next, int v6)
{
	if (!r || next >= r->count || next >= MOST)
		return TC_ACT_UNSPEC;
	return lead(skb, r->macs[next & (MOST - 1)], r->own, &r->forwarded, v6);
}

// new_until is when the later of two rings takes UDP flows that show up for this node's.
static __always_inline __u64 new_until(struct ring *a, struct ring *b)
{
	__u64 first = a ? a->new_until : 0, second = b ? b->new_until : 0;

	return first > second ? first : second;
}

static __always_inline int handle(struct __sk_buff *skb, int v6)
{
	struct flow f = {};
	struct mac from = {};
	__u32 l4 = read_addresses(skb, &f, v6);
	__u64 now = bpf_ktime_get_boot_ns();
	struct ring *routers, *handoff;

	if (!l4)
		return TC_ACT_UNSPEC;
	routers = ring_of(&f, ROUTERS, now);
	handoff = ring_of(&f, HANDOFF, now);
	if ((!routers && !handoff) || is_full() || !read_ports(skb, &f, l4, from.bytes))
		return TC_ACT_UNSPEC;
	if (routers && bpf_map_lookup_elem(&nodes, &from)) {
		if (bpf_map_lookup_elem(&begun, &f))
			return TC_ACT_UNSPEC;
		if (routers->after < routers->count)
			return lead_on(skb, routers, routers->after, v6);
		routers = 0; // it has been round
	}
	// What the former owner leads here is ours.
	if (handoff && same_mac(from.bytes, handoff->macs[0]))
		return TC_ACT_UNSPEC;
	if ((routers || handoff) && mine(skb, &f, l4, new_until(routers, handoff))) {
		if (routers && f.proto == IPPROTO_UDP && !bpf_map_lookup_elem(&begun, &f)) // which has no beginning that could be seen later
			add(&f, now);
		return TC_ACT_UNSPEC;
	}
	return lead_on(skb, routers && routers->count ? routers : handoff, 0, v6);
}

// What agents ask: announce/link/question.go.
enum {
	MESSAGES = 0x88b6,           // announce/steering
	MAGIC_QUESTION = 0x46575351, // "FWSQ"
	VERSION = 1,
	QUESTION = 1,
	ANSWER = 2,
};

struct question {
	__u8 to[ETH_ALEN], from[ETH_ALEN];
	__be16 type;
	__be32 magic;
	__u8 version, kind;
} __attribute__((packed));

// answer tells another node that this one is still there, whether its agent is or not.
static __always_inline int answer(struct __sk_buff *skb)
{
	struct question q;
	__u8 own[ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, &q, sizeof(q)) < 0 || q.magic != bpf_htonl(MAGIC_QUESTION) || q.version != VERSION || q.kind != QUESTION)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(own, q.to, ETH_ALEN);
	__builtin_memcpy(q.to, q.from, ETH_ALEN);
	__builtin_memcpy(q.from, own, ETH_ALEN);
	q.kind = ANSWER;
	if (bpf_skb_store_bytes(skb, 0, &q, sizeof(q), 0) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

SEC("tc")
int steering(struct __sk_buff *skb)
{
	if (is_tagged(skb) || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return handle(skb, 0);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return handle(skb, 1);
	if (skb->protocol == bpf_htons(MESSAGES))
		return answer(skb);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
