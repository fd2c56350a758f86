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

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, struct fragment_key);
	__type(value, __u32); // both ports
} fragments SEC(".maps");

// ports_of_fragment gives a later fragment its ports, if the first has come by,
// and remembers those of a first one.
static __always_inline int ports_of_fragment(struct packet *p)
{
	struct fragment_key k = {.src = p->t.src, .dst = p->t.dst, .id = p->id, .proto = p->t.proto, .hook = p->t.hook};
	__u32 ports = (__u32)p->t.dport << 16 | p->t.sport, *found;

	if (p->fragment == FIRST_FRAGMENT) {
		bpf_map_update_elem(&fragments, &k, &ports, BPF_ANY);
		return 1;
	}
	found = bpf_map_lookup_elem(&fragments, &k);
	if (!found)
		return 0;
	p->t.sport = *found;
	p->t.dport = *found >> 16;
	return 1;
}
