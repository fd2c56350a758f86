// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Leads packets of connections that did not begin at this node to the former owner of
// their address, on the same link: at the ingress of the link's interface, before the data
// plane. Only the frame's MACs and the TTL change.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct address {
	__u8 bytes[16]; // IPv4 as ::ffff:a.b.c.d
};

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

struct flow {
	struct address from, to;
	__be16 sport, dport;
	__u32 proto;
};

// Connections that began here. And UDP flows that didn't, with when they were last seen.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 17);
	__type(key, struct flow);
	__type(value, __u64);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct flow);
	__type(value, __u64);
} theirs SEC(".maps");

enum {
	SYN = 2,
	ACK = 16,
	INIT = 1,              // SCTP's chunk
	FRAGMENT = 0x1fff,     // IPv4: the offset
	IPPROTO_SCTP_ = 132,
	UDP_IDLE = 180,        // s
};

#define SECOND 1000000000ULL

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	__u8 differs = 0;

	for (int i = 0; i < ETH_ALEN; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

// mine reports whether a packet belongs to this node's data plane.
static __always_inline int mine(struct __sk_buff *skb, struct flow *f, __u32 l4, const struct former *to)
{
	__u64 now = bpf_ktime_get_boot_ns(), *seen;
	__u8 flags = 0;

	if (bpf_map_lookup_elem(&begun, f))
		return 1;
	if (f->proto == IPPROTO_UDP) {
		seen = bpf_map_lookup_elem(&theirs, f);
		if (!seen && now > to->new_until)
			return 1;
		if (seen && now - *seen > UDP_IDLE * SECOND) {
			bpf_map_delete_elem(&theirs, f);
			return 1;
		}
		if (!seen || now - *seen > SECOND)
			bpf_map_update_elem(&theirs, f, &now, BPF_ANY);
		return 0;
	}
	if (bpf_skb_load_bytes(skb, l4 + (f->proto == IPPROTO_TCP ? 13 : 12), &flags, 1) < 0)
		return 1;
	if (f->proto == IPPROTO_TCP ? (flags & (SYN | ACK)) == SYN : flags == INIT) {
		bpf_map_update_elem(&begun, f, &now, BPF_ANY);
		return 1;
	}
	return 0;
}

// lead sends the packet to the former owner. A packet that goes round among nodes ends by
// its TTL.
static __always_inline int lead(struct __sk_buff *skb, struct former *to, int v6)
{
	__u8 macs[2 * ETH_ALEN];
	__u32 at = ETH_HLEN + (v6 ? offsetof(struct ipv6hdr, hop_limit) : offsetof(struct iphdr, ttl));
	struct {
		__u8 ttl, proto;
	} old, new;
	__u16 was, is;

	if (bpf_skb_load_bytes(skb, at, &old, sizeof(old)) < 0)
		return TC_ACT_UNSPEC;
	if (old.ttl <= 1)
		return TC_ACT_SHOT;
	new = old;
	new.ttl--;
	__builtin_memcpy(&was, &old, sizeof(was));
	__builtin_memcpy(&is, &new, sizeof(is));
	if (!v6 && bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), was, is, sizeof(is)) < 0)
		return TC_ACT_SHOT;
	__builtin_memcpy(macs, to->mac, ETH_ALEN);
	__builtin_memcpy(macs + ETH_ALEN, to->own, ETH_ALEN);
	if (bpf_skb_store_bytes(skb, at, &new, sizeof(new), v6 ? BPF_F_RECOMPUTE_CSUM : 0) < 0 ||
	    bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) < 0)
		return TC_ACT_SHOT;
	__sync_fetch_and_add(&to->forwarded, 1);
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline int handle(struct __sk_buff *skb, int v6)
{
	struct former *to;
	struct flow f = {};
	__u8 from[ETH_ALEN];
	__u32 l4, ports;

	if (v6) {
		struct ipv6hdr h;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)) < 0)
			return TC_ACT_UNSPEC;
		__builtin_memcpy(&f.from, &h.saddr, 16);
		__builtin_memcpy(&f.to, &h.daddr, 16);
		f.proto = h.nexthdr;
		l4 = ETH_HLEN + sizeof(h);
	} else {
		struct iphdr h;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)) < 0 || h.ihl < 5 || h.frag_off & bpf_htons(FRAGMENT))
			return TC_ACT_UNSPEC;
		f.from.bytes[10] = f.from.bytes[11] = f.to.bytes[10] = f.to.bytes[11] = 0xff;
		__builtin_memcpy(&f.from.bytes[12], &h.saddr, 4);
		__builtin_memcpy(&f.to.bytes[12], &h.daddr, 4);
		f.proto = h.protocol;
		l4 = ETH_HLEN + h.ihl * 4;
	}
	to = bpf_map_lookup_elem(&formers, &f.to);
	if (!to || bpf_ktime_get_boot_ns() > to->until)
		return TC_ACT_UNSPEC;
	if (f.proto != IPPROTO_TCP && f.proto != IPPROTO_UDP && f.proto != IPPROTO_SCTP_)
		return TC_ACT_UNSPEC;
	// What the former owner leads here is ours.
	if (bpf_skb_load_bytes(skb, ETH_ALEN, from, sizeof(from)) < 0 || same_mac(from, to->mac) ||
	    bpf_skb_load_bytes(skb, l4, &ports, sizeof(ports)) < 0)
		return TC_ACT_UNSPEC;
	f.sport = ports;
	f.dport = ports >> 16;
	return mine(skb, &f, l4, to) ? TC_ACT_UNSPEC : lead(skb, to, v6);
}

SEC("tc")
int handoff(struct __sk_buff *skb)
{
	if (skb->vlan_present || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return handle(skb, 0);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return handle(skb, 1);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
