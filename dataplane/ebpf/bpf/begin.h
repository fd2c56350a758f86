// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// New connections: what is decided about their first packet, and the entries
// that make all others follow it.
#pragma once

#include "icmp.h"
#include "refuse.h"
#include "source.h"

#define TUPLE_TRIES 8

// is_first reports whether a packet may begin a connection.
static __always_inline int is_first(const struct packet *p)
{
	return p->t.proto == IPPROTO_UDP || (p->step & (BEGINS | ANSWERS)) == BEGINS;
}

static __always_inline struct conn new_conn(const struct decision *d)
{
	return (struct conn){
		.id = bpf_ktime_get_ns() << 8 | (bpf_get_smp_processor_id() & 0xff),
		.seen = seconds(), .pool = d->pool, .backend = d->to.id,
	};
}

// is_free reports whether the place of an entry may be taken: those of an
// earlier connection of the same client to the same frontend, and of one that
// is over, may.
static __always_inline int is_free(const struct tuple *key, const struct tuple *to)
{
	struct conn *c = conn_of(key);

	if (!c)
		return 1;
	if (c->to.sport == to->sport && c->to.dport == to->dport &&
	    same_address(&c->to.src, &to->src) && same_address(&c->to.dst, &to->dst))
		return 1;
	return c->steps & RESETS;
}

// netfilters reports whether answers to a connection that was left to netfilter
// look like this when they come in. Packets that look like that connection's from
// there on would get another port from netfilter, on their way between the hooks,
// and so would no more be known when they leave.
static __always_inline int netfilters(struct tuple *answers)
{
	struct conn *c;

	answers->hook = AT_INGRESS;
	c = conn_of(answers);
	return c && c->flags & NETFILTERS;
}

// place finds an entry for answers that isn't another connection's, and makes it.
// A client that uses one port for two frontends with the same backend needs
// another for the second: the two would look alike inside the node. One of them
// may be netfilter's, which remembers it also when it has ended. Where netfilter may
// know of a connection that we don't, one set apart has another port to begin with.
static __always_inline int place(struct work *w, enum hook hook, int apart)
{
	for (__u32 i = 0; i < TUPLE_TRIES; i++) {
		int others = apart && i == 0;

		w->key = reversed(&w->to);
		if (hook == AT_EGRESS && netfilters(&w->key))
			others = 1;
		w->key.hook = hook;
		if (!others && is_free(&w->key, &w->c.to))
			return keep(&w->key, &w->c, BPF_ANY);
		w->to.sport = random_port();
	}
	return -1;
}

// stands_apart reports whether a connection has a port of its own between the hooks.
// One that is masqueraded has: if netfilter took it for another of the client's, or
// changed its port lest it be, it would leave as it is (looks_like in conn.h). Others
// have while netfilter's youngest connections aren't known.
static __always_inline int stands_apart(const struct work *w, __u32 own)
{
	return (!own && w->d.masquerade) || (!(w->c.flags & DIRECT) && current_phase() == ENTERING);
}

// connect makes the entries of a connection that came in, or that is one of the
// node's own sockets', whose packets are translated as they leave.
static __always_inline int connect(struct __sk_buff *skb, struct work *w, __u32 own)
{
	__u8 flags = COUNTED | (own ? OWN : w->d.masquerade ? MASQUERADED : 0);

	if (w->d.direct && !(w->d.to.flags & LOCAL) && !own)
		flags = DIRECT; // answers aren't counted, since they don't come by
	w->to = w->p.t;
	w->to.dst = w->d.to.addr;
	w->to.dport = w->d.to.port;
	w->to.hook = 0;
	if (own && is_loopback(&w->to.src) && !own_address(skb, w->p.v6, &w->to.src))
		return -1;
	w->c = new_conn(&w->d);
	w->c.to = reversed(&w->p.t);
	w->c.flags = flags | ANSWER;
	if (place(w, own ? AT_INGRESS : AT_EGRESS, stands_apart(w, own)))
		return -1;
	w->c.to = w->to;
	w->c.flags = flags | COUNTED;
	if (keep(&w->p.t, &w->c, BPF_ANY))
		return -1;
	if (own || !w->d.masquerade)
		return 0;
	w->key = w->to;
	w->key.hook = AT_EGRESS;
	w->c.flags = UNNAMED | MASQUERADED;
	return keep(&w->key, &w->c, BPF_ANY);
}

// is_stray reports whether a packet for a frontend belongs to a connection that
// nobody knows.
static __always_inline int is_stray(const struct packet *p)
{
	return has_ports(p->t.proto) && !is_first(p);
}

// reclaim takes a port of the node's back that masquerading gave a connection which
// is over: the node begins another one from there, to the same backend, whose answers
// would be taken for the former's. Sockets may choose such a port, and so does
// netfilter, as long as another plane's rules are there.
static __always_inline void reclaim(struct work *w)
{
	struct conn *answers, *client;

	w->key = reversed(&w->p.t);
	w->key.hook = AT_INGRESS;
	answers = conn_of(&w->key);
	if (!answers || (answers->flags & (ANSWER | MASQUERADED)) != (ANSWER | MASQUERADED))
		return;
	w->to = reversed(&answers->to);
	w->to.hook = AT_EGRESS;
	client = conn_of(&w->to);
	if (!client || (client->steps | answers->steps) & RESETS || client->steps & answers->steps & CLOSES)
		erase(&conns_2, &w->key);
}

// too_early reports whether a connection would get a port of the node's while it
// isn't known yet which of these netfilter has given to others, answers to which would
// be taken for its own. Its first packet is sent again; a datagram isn't, and risks it.
static __always_inline int too_early(const struct work *w, __u32 own)
{
	return (own || w->d.masquerade) && w->p.t.proto != IPPROTO_UDP && current_phase() == ENTERING;
}

// decide_first decides about a packet without connection, and makes one if it
// is to be forwarded: TC_ACT_PIPE says so.
__noinline int decide_first(struct __sk_buff *skb, __u32 own)
{
	struct work *w = work();
	struct frontend *f;

	if (!w)
		return TC_ACT_SHOT;
	__builtin_memset(&w->d, 0, sizeof(w->d));
	f = front_of(&w->p.t, &w->d);
	if (f && is_stray(&w->p)) {
		if (relayed(skb))
			return TC_ACT_UNSPEC;
		return w->p.t.proto == IPPROTO_TCP ? refuse(skb, own) : TC_ACT_SHOT;
	}
	switch (f ? decide(f, &w->p.t, own ? FROM_NODE : origin_of(skb, &w->p.t.src), &w->d)
		  : decide_unknown(&w->p.t.dst, &w->d)) {
	case PASS:
		if (own && w->p.t.proto != IPPROTO_UDP && is_first(&w->p))
			reclaim(w);
		return TC_ACT_UNSPEC;
	case FORWARD:
		if (too_early(w, own))
			return fail(CHANGES_HANDS);
		break;
	case DISCARD:
		return TC_ACT_SHOT;
	default:
		return refuse(skb, own);
	}
	if (connect(skb, w, own))
		return fail(TABLE_FULL);
	opened(w->d.to.id);
	return TC_ACT_PIPE;
}
