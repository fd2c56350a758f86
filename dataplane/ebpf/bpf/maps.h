// SPDX-License-Identifier: Apache-2.0
//
// The maps that both paths share. Only the agent writes those of the table;
// each is the one element of an outer map, so that the agent can put a larger
// one in its place while packets go on.
#pragma once

#include "types.h"

#define TABLE(name, keytype, valuetype)                                    \
	struct {                                                           \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                  \
		__uint(max_entries, 1);                                    \
		__type(key, __u32);                                        \
		__array(values, struct {                                   \
			__uint(type, BPF_MAP_TYPE_HASH);                   \
			__uint(map_flags, BPF_F_NO_PREALLOC);              \
			__uint(max_entries, 1024);                         \
			__uint(key_size, sizeof(keytype));                 \
			__uint(value_size, sizeof(valuetype));             \
		});                                                        \
	} name SEC(".maps")

TABLE(frontends, struct frontend_key, struct frontend);
TABLE(pools, __u32, struct pool);
TABLE(slots, struct slot_key, struct backend);
TABLE(members, struct member_key, struct member);
TABLE(maglevs, __u32, struct maglev);
TABLE(names, __u32, struct name);

// A trie takes memory only for what is in it.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct prefix);
	__type(value, __u32);
} prefixes SEC(".maps");

// Clients of pools with session affinity; the one that wasn't seen for longest
// is forgotten when there is no room.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct client_key);
	__type(value, struct client);
} clients SEC(".maps");

#define CHUNKED(name, maptype, valuetype)                                  \
	struct {                                                           \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                  \
		__uint(max_entries, CHUNKS);                               \
		__type(key, __u32);                                        \
		__array(values, struct {                                   \
			__uint(type, maptype);                             \
			__uint(max_entries, CHUNK);                        \
			__type(key, __u32);                                \
			__uint(value_size, sizeof(valuetype));             \
		});                                                        \
	} name SEC(".maps")

CHUNKED(counts, BPF_MAP_TYPE_PERCPU_ARRAY, struct counters);
CHUNKED(states, BPF_MAP_TYPE_ARRAY, struct state);

// find looks a key up in a table.
static __always_inline void *find(void *table, const void *key)
{
	__u32 only = 0;
	void *inner = bpf_map_lookup_elem(table, &only);
	return inner ? bpf_map_lookup_elem(inner, key) : NULL;
}

// at finds the place of an id in a chunked map.
static __always_inline void *at(void *chunks, __u32 id)
{
	__u32 chunk = id / CHUNK, place = id % CHUNK;
	void *inner = bpf_map_lookup_elem(chunks, &chunk);
	return inner ? bpf_map_lookup_elem(inner, &place) : NULL;
}

static __always_inline struct counters *counters_of(__u32 id) { return at(&counts, id); }
static __always_inline struct state *state_of(__u32 id) { return at(&states, id); }

// within reports whether an address is in one of a scope's prefixes.
static __always_inline int within(__u32 scope, const struct address *a)
{
	struct prefix p = {.bits = 32 + 128, .scope = scope, .addr = *a};
	return bpf_map_lookup_elem(&prefixes, &p) != NULL;
}

static __always_inline int same_address(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] &&
	       a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

static __always_inline struct address mapped(__be32 ip4)
{
	return (struct address){{0, 0, bpf_htonl(0xffff), ip4}};
}

static __always_inline int is_mapped(const struct address *a)
{
	return a->word[0] == 0 && a->word[1] == 0 && a->word[2] == bpf_htonl(0xffff);
}
