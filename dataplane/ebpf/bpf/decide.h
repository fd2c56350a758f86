// SPDX-License-Identifier: Apache-2.0
//
// What model.Table.Decide says, in C.
#pragma once

#include "choose.h"

static __always_inline struct frontend_key key_of(const struct tuple *t)
{
	return (struct frontend_key){.addr = t->dst, .port = t->dport, .proto = t->proto};
}

// origin_of_source tells pods from the outside by their addresses. Whether a
// packet came through an interface of pods is for the caller to say.
static __always_inline enum origin origin_of_source(const struct address *src)
{
	return within(PODS, src) ? FROM_POD : FROM_OUTSIDE;
}

// front_of finds the frontend that a packet is for. d must be all zero.
static __always_inline struct frontend *front_of(const struct tuple *t, struct decision *d)
{
	d->front = key_of(t);
	if (!yielded(&d->front))
		return find_frontend(&d->front);
	d->reason = EXEMPTED;
	return NULL;
}

// decide_unknown is for packets that are for no frontend.
static __always_inline int decide_unknown(const struct address *dst, struct decision *d)
{
	if (d->reason == EXEMPTED || !reserved(dst))
		return d->action = PASS;
	d->reason = EXEMPTED;
	if (within(EXEMPT, dst))
		return PASS;
	d->reason = UNKNOWN_PORT;
	return d->action = REFUSE;
}

static __always_inline void count_rejected(__u32 front, enum reason why)
{
	struct counters *c = counters_of(front);
	if (!c)
		return;
	if (why == SOURCE_NOT_ALLOWED)
		c->not_allowed++;
	else
		c->no_backend++;
}

static __always_inline int reject(struct decision *d, enum action a, enum reason why)
{
	d->action = a;
	d->reason = why;
	count_rejected(d->front_id, why);
	return a;
}

static __always_inline void count_connection(__u32 id)
{
	struct counters *c = counters_of(id);
	if (c)
		c->connections++;
}

// decide says what happens to the first packet of a connection for a frontend, and
// chooses a backend if it is forwarded. The caller reports with opened that the
// connection has come to be.
static __always_inline int decide(const struct frontend *f, const struct tuple *t, __u32 origin, struct decision *d)
{
	const struct route *r;
	struct pool *p;

	d->front_id = f->id;
	if (f->flags & RESTRICTED && !within(f->id, &t->src))
		return reject(d, DISCARD, SOURCE_NOT_ALLOWED);
	r = &f->routes[origin < ORIGINS ? origin : FROM_OUTSIDE];
	d->pool = r->pool;
	p = find_pool(&d->pool);
	if (!p)
		return reject(d, REFUSE, NO_BACKEND); // being removed
	if (!p->backends || !choose(d->pool, p, t, d))
		return reject(d, p->flags & DROP ? DISCARD : REFUSE, NO_BACKEND);
	d->direct = r->flags & DIRECT_RETURN && !same_address(&d->to.addr, &t->src);
	d->masquerade = !d->direct && (r->flags & MASQUERADE || same_address(&d->to.addr, &t->src));
	d->reason = HAS_BACKEND;
	count_connection(d->front_id);
	return d->action = FORWARD;
}

enum choice { FIRST, SECOND };

// resume says where a packet goes from the middle of a connection that this node doesn't
// know, as model.Table.Resume does: FORWARD, or REFUSE if there is nobody to ask.
static __always_inline int resume(const struct frontend *f, const struct tuple *t, __u32 origin, enum choice which, struct decision *d)
{
	const struct route *r = &f->routes[origin < ORIGINS ? origin : FROM_OUTSIDE];
	struct backend *b = NULL;
	struct pool *p;

	if (!(r->flags & STABLE) || (f->flags & RESTRICTED && !within(f->id, &t->src)))
		return REFUSE;
	d->resumed = 1;
	d->pool = r->pool;
	p = find_pool(&d->pool);
	if (p && p->backends)
		b = which == FIRST ? by_maglev(d->pool, p, client_hash(p, t)) : second(d->pool, p, t);
	if (!b || same_address(&b->addr, &t->src))
		return REFUSE;
	d->front_id = f->id;
	d->to = *b;
	d->direct = 1;
	return d->action = FORWARD;
}

// opened counts a new connection of a backend, acquired one that has come from another node; released says that it has ended,
// which lc, wlc, sed and nq want to know.
static __always_inline void acquired(__u32 backend)
{
	struct state *s = state_of(backend);
	if (s)
		__sync_fetch_and_add(&s->active, 1);
}

static __always_inline void opened(__u32 backend)
{
	count_connection(backend);
	acquired(backend);
}

static __always_inline void released(__u32 backend)
{
	struct state *s = state_of(backend);
	if (s && count(s->active) > 0)
		__sync_fetch_and_add(&s->active, -1);
}
