// SPDX-License-Identifier: Apache-2.0
//
// How a pool chooses a backend for a new connection: the schedulers that IPVS
// has (ipvsadm(8)), and session affinity before them.
#pragma once

#include "maps.h"

// MANY is how many backends lc, wlc, sed and nq look at. Of larger pools each
// connection sees so many in a row, from where the last one left off.
#define MANY 64

static __always_inline __u32 mix(__u32 h)
{
	h ^= h >> 16;
	h *= 0x7feb352d;
	h ^= h >> 15;
	h *= 0x846ca68b;
	return h ^ h >> 16;
}

static __always_inline __u32 hash(const struct address *a)
{
	return mix(mix(mix(mix(a->word[0]) ^ a->word[1]) ^ a->word[2]) ^ a->word[3]);
}

// turn is how many connections the pool has had before. Kernels before 5.12
// can't add and read in one step: now and then two CPUs take the same turn.
static __always_inline __u32 turn(__u32 pool)
{
	struct state *s = state_of(pool);
	if (!s)
		return bpf_get_prandom_u32();
	__sync_fetch_and_add(&s->cursor, 1);
	return *(volatile __u64 *)&s->cursor;
}

static __always_inline struct backend *slot(__u32 pool, __u32 index)
{
	struct slot_key k = {pool, index};
	struct backend *b = find_slot(&k);
	if (b)
		return b;
	k.index = 0; // the pool is being made smaller just now
	return find_slot(&k);
}

// any is the n-th of all slots, wherever it is.
static __always_inline struct backend *any(__u32 id, const struct pool *p, __u32 n)
{
	return slot(id, n < p->backends ? n : (n - p->backends) | MORE);
}

// What lc, wlc, sed and nq want the least of: connections over the weight.
enum measure {
	UNWEIGHTED = 1,  // the weight doesn't matter
	WITH_NEW = 2,    // the new connection counts
	UNLESS_IDLE = 4, // it counts unless it is the only one
};

// score is how much of that a slot's backend has, with the slot's number in the
// last 24 bits. A function of its own, so that the verifier looks at it once, and
// not in every round of the loop that calls it.
__noinline __u64 score(__u32 measure, __u32 pool, __u32 index)
{
	struct slot_key k = {pool, index};
	struct backend *b = find_slot(&k);
	struct state *s = b ? state_of(b->id) : NULL;
	__u64 n, weight;

	if (!s)
		return ~0ULL;
	n = count(s->active);
	if (measure & WITH_NEW || (measure & UNLESS_IDLE && n))
		n++;
	weight = measure & UNWEIGHTED ? 1 : b->weight ?: 1;
	return (n << 16) / weight << 24 | (index & 0xffffff);
}

// least finds the slot of the backend with the least score.
__noinline int least(__u32 measure, __u32 pool, __u32 n, __u32 first)
{
	__u64 best = ~0ULL;

	for (__u32 i = 0; i < MANY && i < n; i++) {
		__u32 index = first + i;
		__u64 one = score(measure, pool, index < n ? index : index - n);

		if (one < best)
			best = one;
	}
	return best & 0xffffff;
}

static __always_inline __u32 by_load(enum measure measure, __u32 pool, __u32 n)
{
	__u32 first = turn(pool);

	if (n > MANY)
		first *= MANY;
	return least(measure, pool, n, first % (n ?: 1));
}

// client_hash is what Maglev hashing chooses by, the same on every node. A socket has
// no port yet: any will do.
static __always_inline __u32 client_hash(const struct pool *p, const struct tuple *t)
{
	__u32 h = hash(&t->src);

	if (p->scheduler != MH_PORT)
		return h;
	return mix(h ^ (t->sport ? bpf_ntohs(t->sport) : bpf_get_prandom_u32()));
}

static __always_inline struct backend *by_maglev(__u32 id, const struct pool *p, __u32 h)
{
	__u32 n = h % (p->stride ?: 1), place = n % PLACES;
	struct slot_key k = {id, n / PLACES};
	struct maglev *m = find_maglev(&k);

	barrier_var(place); // or the compiler knows the comparison's outcome, and the verifier doesn't
	return slot(id, m && place < PLACES ? m->slot[place] : 0);
}

// second finds whom a stable pool would choose if it hadn't the backend that it chooses.
static __always_inline struct backend *second(__u32 id, const struct pool *p, const struct tuple *t)
{
	__u32 n = client_hash(p, t) % (p->stride ?: 1), place = n % PLACES;
	struct slot_key k = {id, n / PLACES | MORE};
	struct maglev *m = find_maglev(&k);

	barrier_var(place);
	if (!m || place >= PLACES)
		return NULL;
	k.index = ALL | m->slot[place];
	return find_slot(&k);
}

static __always_inline struct backend *schedule(__u32 id, const struct pool *p, const struct tuple *t)
{
	__u32 n = p->slots ?: 1;

	switch (p->scheduler) {
	case RR:
		return slot(id, turn(id) % (p->backends ?: 1));
	case WRR: // in steps, so that a backend's turns don't come in a row
		return any(id, p, (__u64)turn(id) * p->stride % n);
	case LC:
		return slot(id, by_load(UNWEIGHTED, id, p->backends));
	case WLC:
		return slot(id, by_load(0, id, p->backends));
	case SED:
		return slot(id, by_load(WITH_NEW, id, p->backends));
	case NQ:
		return slot(id, by_load(UNLESS_IDLE, id, p->backends));
	case SH:
		return any(id, p, hash(&t->src) % n);
	case DH:
		return any(id, p, hash(&t->dst) % n);
	case MH:
	case MH_PORT:
		return by_maglev(id, p, client_hash(p, t));
	}
	return any(id, p, bpf_get_prandom_u32() % n);
}

// member_of finds a backend among a pool's, draining ones included.
static __always_inline struct member *member_of(__u32 pool, const struct endpoint *to)
{
	struct member_key k = {.pool = pool, .to = *to};
	return find_member(&k);
}

static __always_inline struct endpoint endpoint_of(const struct backend *b)
{
	return (struct endpoint){.addr = b->addr, .port = b->port};
}

// remembered finds the backend that the client had, if it may have it again.
static __always_inline int remembered(const struct client_key *k, __u32 seconds, struct backend *to)
{
	struct client *c = recall(&clients_2, k);
	struct member *m;

	if (!c || bpf_ktime_get_ns() - c->seen > (__u64)seconds * 1000000000)
		return 0;
	m = member_of(k->pool, &c->to);
	if (!m || !(m->flags & ACTIVE))
		return 0;
	c->seen = bpf_ktime_get_ns();
	to->addr = c->to.addr;
	to->port = c->to.port;
	to->weight = 0;
	to->id = m->id;
	to->flags = m->flags;
	return 1;
}

static __always_inline void remember(const struct client_key *k, const struct backend *to)
{
	struct client c = {.to = endpoint_of(to), .seen = bpf_ktime_get_ns()};
	put(&clients_2, IN_CLIENTS, k, &c, BPF_ANY);
}

// choose takes one of the pool's backends, of which there must be some. It
// returns 0 if the pool lost them just now.
static __always_inline int choose(__u32 id, const struct pool *p, const struct tuple *t, struct decision *d)
{
	struct client_key k = {.pool = id, .client = t->src};
	struct backend *b;

	d->pool = id;
	if (p->affinity && remembered(&k, p->affinity, &d->to)) {
		d->known = 1;
		return 1;
	}
	b = schedule(id, p, t);
	if (!b)
		return 0;
	d->to = *b;
	if (p->affinity)
		remember(&k, b);
	return 1;
}
