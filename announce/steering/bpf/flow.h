/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What programs have in common that lead packets to the node where their connection began:
 * flows, which of them are this node's, and how a packet gets to another node of the link.
 */

#pragma once

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

#include "vlan.h"

struct address {
	__u8 bytes[16]; // IPv4 as ::ffff:a.b.c.d
};

struct flow {
	struct address from, to;
	__be16 sport, dport;
	__u32 proto;
};

// Connections that began here. None is pushed out by another: it would be led away. And UDP flows
// that didn't, with when they were last seen.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, struct flow);
	__type(value, __u64);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct flow);
	__type(value, __u64);
} theirs SEC(".maps");

// How full the first one is: how many were added since the agent has counted, and whether there
// was no room for one. Nothing is led any more then.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} fullness SEC(".maps");

enum {
	ADDED = 0,
	FULL = 1,
};

static __always_inline int is_full(void)
{
	__u32 full = FULL;
	__u64 *is = bpf_map_lookup_elem(&fullness, &full);

	return is && *is;
}

// add notes a connection that begins here.
static __always_inline void add(struct flow *f, __u64 now)
{
	__u32 which = bpf_map_update_elem(&begun, f, &now, BPF_ANY) ? FULL : ADDED;
	__u64 *n = bpf_map_lookup_elem(&fullness, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

enum {
	SYN = 2,
	ACK = 16,
	INIT = 1,              // SCTP's chunk
	FRAGMENT = 0x1fff,     // IPv4: the offset
	IPPROTO_SCTP_ = 132,
	UDP_IDLE = 180,        // s
};

#define SECOND 1000000000ULL

// mine reports whether a packet belongs to this node's data plane.
static __always_inline int mine(struct __sk_buff *skb, struct flow *f, __u32 l4, __u64 new_until)
{
	__u64 now = bpf_ktime_get_boot_ns(), *seen;
	__u8 flags = 0;

	if (bpf_map_lookup_elem(&begun, f))
		return 1;
	if (f->proto == IPPROTO_UDP) {
		seen = bpf_map_lookup_elem(&theirs, f);
		if (!seen && now > new_until)
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
		add(f, now);
		return 1;
	}
	return 0;
}

// lead sends the packet to another node of the link. A packet that goes round among nodes ends by
// its TTL.
static __always_inline int lead(struct __sk_buff *skb, const __u8 *to, const __u8 *own, __u64 *count, int v6)
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
	__builtin_memcpy(macs, to, ETH_ALEN);
	__builtin_memcpy(macs + ETH_ALEN, own, ETH_ALEN);
	if (bpf_skb_store_bytes(skb, at, &new, sizeof(new), v6 ? BPF_F_RECOMPUTE_CSUM : 0) < 0 ||
	    bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) < 0)
		return TC_ACT_SHOT;
	__sync_fetch_and_add(count, 1);
	return bpf_redirect(skb->ifindex, 0);
}

// read_addresses reads what a packet says before its ports, and where these are; 0 if it is
// none that has a beginning and an end.
static __always_inline __u32 read_addresses(struct __sk_buff *skb, struct flow *f, int v6)
{
	if (v6) {
		struct ipv6hdr h;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)) < 0)
			return 0;
		__builtin_memcpy(&f->from, &h.saddr, 16);
		__builtin_memcpy(&f->to, &h.daddr, 16);
		f->proto = h.nexthdr;
		return ETH_HLEN + sizeof(h);
	}
	struct iphdr h;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)) < 0 || h.ihl < 5 || h.frag_off & bpf_htons(FRAGMENT))
		return 0;
	f->from.bytes[10] = f->from.bytes[11] = f->to.bytes[10] = f->to.bytes[11] = 0xff;
	__builtin_memcpy(&f->from.bytes[12], &h.saddr, 4);
	__builtin_memcpy(&f->to.bytes[12], &h.daddr, 4);
	f->proto = h.protocol;
	return ETH_HLEN + h.ihl * 4;
}

// read_ports reads the rest, and the MAC of who sent the frame.
static __always_inline int read_ports(struct __sk_buff *skb, struct flow *f, __u32 l4, __u8 *from)
{
	__u32 ports;

	if (f->proto != IPPROTO_TCP && f->proto != IPPROTO_UDP && f->proto != IPPROTO_SCTP_)
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_ALEN, from, ETH_ALEN) < 0 || bpf_skb_load_bytes(skb, l4, &ports, sizeof(ports)) < 0)
		return 0;
	f->sport = ports;
	f->dport = ports >> 16;
	return 1;
}
