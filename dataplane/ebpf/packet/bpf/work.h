// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// What the packet path works with.
#pragma once

#include "kind.h"

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

enum fragment { WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT };

// What a packet does to its connection.
enum step {
	BEGINS = 1,  // TCP's SYN, SCTP's INIT
	CLOSES = 2,  // TCP's FIN, SCTP's SHUTDOWN
	RESETS = 4,  // TCP's RST, SCTP's ABORT, or the end of its shutdown
	ACKS = 8,    // TCP's ACK

	// In conn.steps only.
	LAST = 32,    // as RESUMED, and if its backend's node doesn't know it, nobody does
	RESUMED = 64, // began at another node, to which its packets came before: see stray.h
	USED = 128,   // there was a packet
};

struct packet {
	struct tuple t;
	__u32 id;   // of the fragments of one packet
	__u16 l3;   // offset of the IP header
	__u16 l4;   // offset of what the last IP header is followed by
	__u16 len;  // of the packet from the IP header on, as that says
	__u8 v6;    //
	__u8 fragment;
	__u8 step;
	__u8 icmp;      // its type, if it is an ICMP packet
	__u8 reflected; // SCTP: the verification tag is the sender's own (RFC 9260, 8.5.1)
	__u16 seq;      // TCP: the upper half of the sequence number
	__u16 ack;      // TCP: of the number that is acknowledged; SCTP: of the verification tag
};

// reverse says how an answer looks; the two must not be the same.
static __always_inline void reverse(const struct tuple *t, struct tuple *r)
{
	__builtin_memcpy(&r->src, &t->dst, sizeof(r->src));
	__builtin_memcpy(&r->dst, &t->src, sizeof(r->dst));
	r->sport = t->dport;
	r->dport = t->sport;
	r->proto = t->proto;
	r->hook = t->hook;
	r->pad[0] = r->pad[1] = 0;
}

static __always_inline struct tuple reversed(const struct tuple *t)
{
	struct tuple r;

	reverse(t, &r);
	return r;
}

#define LOOPBACK 1 // the index of lo in every network namespace


struct conn {
	struct tuple to; // what the packet becomes
	__u64 id;
	__u32 seen; // CLOCK_MONOTONIC, s
	__u32 pool, backend;
	enum kind kind;
	__u8 steps; // of all packets: enum step
	__u16 memo; // netfilter's UDP flows: how long it remembers them, s; TCP, SCTP: see memo_of
};

// union ip_header has room for either.
union ip_header {
	struct iphdr v4;
	struct ipv6hdr v6;
	__be32 words[10];
};

#define QUOTED 64 // bytes behind the IP header that an error quotes at most

struct quote {
	union ip_header ip;
	__u8 rest[QUOTED];
};

// A connection, as it is found again: by the entry of its answers (expire.h).
struct tracked {
	struct tuple answers;
	__u64 id;
};

// struct work is what is known of the packet at hand. It is in a map, since
// functions that the verifier looks at only once (those that aren't static) get
// nothing but numbers and the packet itself in Linux 5.10.
struct work {
	struct packet p;
	struct tuple to;   // what it becomes
	struct decision d; // if it is the first of its connection
	struct tuple key;  // of an entry in the making
	struct conn c;     // and its value
	struct tracked made;
	struct tracked old;   // another one that is looked at, and a key of it
	struct tuple other;   //
	struct tracked least; // and the one of them that is worth least
	struct tracked before;
	__u64 worth, least_worth;
	union {
		struct packet quoted; // by an ICMP error
		struct quote quote;   // for one
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

static __always_inline struct work *work(void)
{
	__u32 only = 0;
	return bpf_map_lookup_elem(&works, &only);
}
