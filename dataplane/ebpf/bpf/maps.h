// SPDX-License-Identifier: Apache-2.0
//
// The maps that both paths share. Only the agent writes those of the table;
// each is the one element of an outer map, so that the agent can put a larger
// one in its place while packets go on.
#pragma once

#include "types.h"

#include <linux/errno.h>

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
TABLE(maglev_2, struct slot_key, struct maglev);
TABLE(names, __u32, struct name);

// A trie takes memory only for what is in it.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct prefix);
	__type(value, __u32);
} prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ranges);
} ranges SEC(".maps");

// Maps that the programs fill become larger while they do: the agent adds a larger
// one, NOW, and moves into it what the one BEFORE holds (maps/resizable.go). The number in
// their names is their elements' layout's: another layout is another map.
enum generation { NOW, BEFORE, GENERATIONS };

#define GROWING(name, maptype, flags, keytype, valuetype, room)            \
	struct {                                                           \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                  \
		__uint(max_entries, GENERATIONS);                          \
		__type(key, __u32);                                        \
		__array(values, struct {                                   \
			__uint(type, maptype);                             \
			__uint(map_flags, flags);                          \
			__uint(max_entries, room);                         \
			__uint(key_size, sizeof(keytype));                 \
			__uint(value_size, sizeof(valuetype));             \
		});                                                        \
	} name SEC(".maps")

// Clients of pools with session affinity; the one that wasn't seen for longest
// is forgotten when there is no room.
GROWING(clients_2, BPF_MAP_TYPE_LRU_HASH, 0, struct client_key, struct client, 1 << 14);

// How many elements were put into each of them, so that the agent knows when to
// look how many there are. Some may have been there before.
enum filled { IN_CONNS, IN_SOCKETS, IN_CLIENTS, IN_FLOWS, IN_ANSWERS, FILLED };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, FILLED * sizeof(__u64));
} noted SEC(".maps");

// Frontends of cluster DNS that this node answers itself, before any data plane:
// until when (ktime, ns). The agent renews that for as long as it lives.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct frontend_key);
	__type(value, __u64);
} yields SEC(".maps");

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

// The kernel writes its own code in the place of each lookup, and moves the rest of the
// program for it. So what is looked for from many places is looked for in one.
#define ONE_PLACE static __noinline __attribute__((unused))
ONE_PLACE struct frontend *find_frontend(const struct frontend_key *k) { return find(&frontends, k); }
ONE_PLACE struct pool *find_pool(const __u32 *k) { return find(&pools, k); }
ONE_PLACE struct backend *find_slot(const struct slot_key *k) { return find(&slots, k); }
ONE_PLACE struct member *find_member(const struct member_key *k) { return find(&members, k); }
ONE_PLACE struct maglev *find_maglev(const struct slot_key *k) { return find(&maglev_2, k); }

static __always_inline void *in(void *growing, enum generation which, const void *key)
{
	__u32 g = which;
	void *m = bpf_map_lookup_elem(growing, &g);
	return m ? bpf_map_lookup_elem(m, key) : NULL;
}

// recall_before looks for a key that wasn't found in a map that grows: it may be in the
// one before, or have moved from there meanwhile.
static __always_inline void *recall_before(void *growing, const void *key)
{
	__u32 g = BEFORE;
	void *before = bpf_map_lookup_elem(growing, &g);

	if (!before)
		return NULL;
	return bpf_map_lookup_elem(before, key) ?: in(growing, NOW, key);
}

// recall looks a key up in a map that grows. It may move from the one to the other
// while it isn't found in either.
static __always_inline void *recall(void *growing, const void *key)
{
	return in(growing, NOW, key) ?: recall_before(growing, key);
}

// put puts an element into a map that grows; -EEXIST says that with BPF_NOEXIST
// there is one.
static __always_inline long put(void *growing, enum filled which, const void *key, const void *value, __u64 how)
{
	__u32 first = NOW;
	void *m = bpf_map_lookup_elem(growing, &first);
	__u64 *n = bpf_map_lookup_elem(&noted, &first);

	if (!m || !n)
		return -ENOENT;
	if (how == BPF_NOEXIST && in(growing, BEFORE, key))
		return -EEXIST;
	n[which]++;
	return bpf_map_update_elem(m, key, value, how);
}

static __always_inline void erase_in(void *growing, enum generation which, const void *key)
{
	__u32 g = which;
	void *m = bpf_map_lookup_elem(growing, &g);

	if (m)
		bpf_map_delete_elem(m, key);
}

// erase takes an element out of a map that grows.
static __always_inline void erase(void *growing, const void *key)
{
	erase_in(growing, BEFORE, key); // first, or the agent moves what is deleted: see moveOne in maps/resizable.go
	erase_in(growing, NOW, key);
}

// yielded reports whether packets to a frontend are not for us now. Only those
// of DNS ever are, and others don't pay for the question.
static __always_inline int yielded(const struct frontend_key *k)
{
	__u64 *until;

	if (k->port != bpf_htons(53))
		return 0;
	until = bpf_map_lookup_elem(&yields, k);
	return until && bpf_ktime_get_ns() < *until;
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

// count reads what was counted up and down. Two CPUs that take the last one off at
// the same time leave -1, which is none.
static __always_inline __u64 count(__u64 n) { return (__s64)n < 0 ? 0 : n; }

// within reports whether an address is in one of a scope's prefixes.
static __always_inline int within(__u32 scope, const struct address *a)
{
	struct prefix p = {.bits = 32 + 128, .scope = scope, .addr = *a};
	return bpf_map_lookup_elem(&prefixes, &p) != NULL;
}

static __always_inline int in_range(const struct range *r, const struct address *a)
{
	return !(((a->word[0] & r->mask.word[0]) ^ r->addr.word[0]) | ((a->word[1] & r->mask.word[1]) ^ r->addr.word[1]) |
		 ((a->word[2] & r->mask.word[2]) ^ r->addr.word[2]) | ((a->word[3] & r->mask.word[3]) ^ r->addr.word[3]));
}

// reserved reports whether an address is one of Services', served or not.
static __always_inline int reserved(const struct address *a)
{
	__u32 only = 0;
	struct ranges *r = bpf_map_lookup_elem(&ranges, &only);

	if (!r || !r->known)
		return within(RESERVED, a);
	for (__u32 i = 0; i < RANGES && i + 1 < r->known; i++)
		if (in_range(&r->list[i], a))
			return 1;
	return 0;
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
