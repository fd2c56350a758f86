// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Leads packets of connections that did not begin at this node to the former owner of
// their address, on the same link: at the ingress of the link's interface, before the data
// plane. Only the frame's MACs and the TTL change.

#include "flow.h"

// The former owner of an address.
struct former {
	__u8 mac[ETH_ALEN];
	__u8 own[ETH_ALEN]; // the MAC of this node
	__u8 unused[4];
	__u64 until;       // nothing is led there after this: CLOCK_BOOTTIME, ns
	__u64 new_until;   // UDP flows that show up before this are the former owner's
	__u64 forwarded;   // packets
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, struct address);
	__type(value, struct former);
} formers SEC(".maps");

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	__u8 differs = 0;

	for (int i = 0; i < ETH_ALEN; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

static __always_inline int handle(struct __sk_buff *skb, int v6)
{
	struct former *to;
	struct flow f = {};
	__u8 from[ETH_ALEN];
	__u32 l4 = read_addresses(skb, &f, v6);

	if (!l4)
		return TC_ACT_UNSPEC;
	to = bpf_map_lookup_elem(&formers, &f.to);
	if (!to || bpf_ktime_get_boot_ns() > to->until || is_full() || !read_ports(skb, &f, l4, from))
		return TC_ACT_UNSPEC;
	// What the former owner leads here is ours.
	if (same_mac(from, to->mac) || mine(skb, &f, l4, to->new_until))
		return TC_ACT_UNSPEC;
	return lead(skb, to->mac, to->own, &to->forwarded, v6);
}

SEC("tc")
int handoff(struct __sk_buff *skb)
{
	if (is_tagged(skb) || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return handle(skb, 0);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return handle(skb, 1);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
