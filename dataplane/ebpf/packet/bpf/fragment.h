// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Fragments: the first has the ports, the others are found by its id.
#pragma once

#include "conn.h"

struct fragment_key {
	struct address src, dst;
	__u32 id;
	__u8 proto, hook;
	__u16 pad;
};

struct fragmented {
	__u32 ports; // both
	__u32 seen;  // CLOCK_MONOTONIC, s
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, struct fragment_key);
	__type(value, struct fragmented);
} fragments SEC(".maps");

// REASSEMBLY is for how many seconds fragments may be of one packet: Linux's ipfrag_time.
// Ids come again.
#define REASSEMBLY 30

// ports_of_fragment gives a later fragment its ports, if the first has come by,
// and remembers those of a first one.
static __always_inline int ports_of_fragment(struct packet *p)
{
	struct fragment_key k = {.src = p->t.src, .dst = p->t.dst, .id = p->id, .proto = p->t.proto, .hook = p->t.hook};
	struct fragmented first = {.ports = (__u32)p->t.dport << 16 | p->t.sport, .seen = seconds()}, *found;

	if (p->fragment == FIRST_FRAGMENT) {
		bpf_map_update_elem(&fragments, &k, &first, BPF_ANY);
		return 1;
	}
	found = bpf_map_lookup_elem(&fragments, &k);
	if (!found || first.seen - found->seen > REASSEMBLY)
		return 0;
	p->t.sport = found->ports;
	p->t.dport = found->ports >> 16;
	return 1;
}
