// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// New connections: what is decided about their first packet, and the entries
// that make all others follow it.
#pragma once

#include "icmp.h"
#include "refuse.h"
#include "stray.h"

// TUPLE_TRIES is how many places are tried. From the middle on, those of connections
// that both ends have closed will do.
#define TUPLE_TRIES 32

// opens_connection reports whether a packet may begin a connection.
static __always_inline int opens_connection(const struct packet *p)
{
	return p->t.proto == IPPROTO_UDP || (p->step & (BEGINS | ACKS)) == BEGINS;
}

static __always_inline struct conn new_conn(const struct decision *d)
{
	return (struct conn){
		.id = bpf_ktime_get_ns() << 8 | (bpf_get_smp_processor_id() & 0xff),
		.seen = seconds(), .pool = d->pool, .backend = d->to.id, .steps = d->steps,
	};
}

// is_free reports whether the place w->key of an entry for answers may be taken:
// those of an earlier connection of the same client to the same frontend, and of
// one that is over, may.
static __always_inline int is_free(struct work *w, int closed)
{
	const struct tuple *to = &w->c.to;
	struct conn *c = conn_of(&w->key);

	if (!c)
		return 1;
	if (c->to.sport == to->sport && c->to.dport == to->dport &&
	    same_address(&c->to.src, &to->src) && same_address(&c->to.dst, &to->dst))
		return 1;
	if (c->steps & RESETS)
		return 1;
	if (!has(c, LISTED))
		return 0;
	w->old.answers = w->key;
	w->old.id = c->id;
	return judge(closed) == ENDED;
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
	return c && is_netfilters(c);
}

// has_place reports whether answers to what looks like w->to have a place at a hook,
// and leaves it in w->key. A function of its own, so that the verifier looks at it once.
__noinline int has_place(__u32 hook, __u32 closed)
{
	struct work *w = work();

	if (!w)
		return 0;
	reverse(&w->to, &w->key);
	if (hook == AT_EGRESS && netfilters(&w->key))
		return 0;
	w->key.hook = hook;
	return is_free(w, closed);
}

// insert_reply_entry finds an entry for answers that isn't another connection's, and makes it.
// A client that uses one port for two frontends with the same backend needs
// another for the second: the two would look alike inside the node. One of them
// may be netfilter's, which remembers it also when it has ended. Where netfilter may
// know of a connection that we don't, one set apart has another port to begin with.
static __always_inline int insert_reply_entry(struct work *w, enum hook hook, int apart)
{
	for (__u32 i = 0; i < TUPLE_TRIES; i++) {
		if (!(apart && i == 0) && has_place(hook, i >= TUPLE_TRIES / 2))
			return insert(BPF_ANY);
		w->to.sport = random_port();
	}
	return -1;
}

// stands_apart reports whether a connection has a port of its own between the hooks.
// One that is masqueraded has: if netfilter took it for another of the client's, or
// changed its port lest it be, it would leave as it is (is_unrelated in conn.h). So has
// a UDP flow of the node's own: nobody knows when that is over, and a socket that gets
// its port next may be connected to the same backend by the socket path. Others have
// while netfilter's youngest connections aren't known.
static __always_inline int stands_apart(const struct work *w, __u32 own)
{
	return (own ? w->p.t.proto == IPPROTO_UDP : w->d.masquerade) ||
	       (w->c.kind != SENT_ANSWERS && current_phase() == ENTERING);
}

// connect makes the entries of a connection that came in, or that is one of the
// node's own sockets', whose packets are translated as they leave.
static __always_inline int connect(struct __sk_buff *skb, struct work *w, __u32 own)
{
	enum kind clients = CLIENTS, answers = ANSWERS;

	if (own) {
		clients = OWN_CLIENTS;
		answers = OWN_ANSWERS;
	} else if (w->d.direct && !(w->d.to.flags & LOCAL)) {
		clients = SENT_CLIENTS;
		answers = SENT_ANSWERS;
	} else if (w->d.masquerade) {
		clients = MASQ_CLIENTS;
		answers = MASQ_ANSWERS;
	}
	w->to = w->p.t;
	w->to.dst = w->d.to.addr;
	w->to.dport = w->d.to.port;
	w->to.hook = 0;
	if (own && is_loopback(&w->to.src) && !own_address(skb, w->p.v6, &w->to.src))
		return -1;
	w->c = new_conn(&w->d);
	w->c.to = reversed(&w->p.t);
	w->c.kind = answers;
	if (insert_reply_entry(w, own ? AT_INGRESS : AT_EGRESS, stands_apart(w, own)))
		return -1;
	w->made.answers = w->key;
	w->made.id = w->c.id;
	w->c.to = w->to;
	w->c.kind = clients;
	w->key = w->p.t;
	if (insert(BPF_ANY))
		return -1;
	if (own || !w->d.masquerade)
		return track();
	w->key = w->to;
	w->key.hook = AT_EGRESS;
	w->c.kind = MASQ_UNNAMED;
	return insert(BPF_ANY) ?: track();
}

// is_midstream reports whether a packet for a frontend belongs to a connection that
// nobody knows.
static __always_inline int is_midstream(const struct packet *p)
{
	return has_ports(p->t.proto) && !opens_connection(p);
}

// answers_opening reports whether a packet is TCP's SYN-ACK, which no client sends: what
// it answers was sent from an address and port that a frontend has.
static __always_inline int answers_opening(const struct packet *p)
{
	return p->t.proto == IPPROTO_TCP && (p->step & (BEGINS | ACKS)) == (BEGINS | ACKS);
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
	if (!answers || kind_of(answers) != MASQ_BACK)
		return;
	w->to = reversed(&answers->to);
	w->to.hook = AT_EGRESS;
	client = conn_of(&w->to);
	if (!client || (client->steps | answers->steps) & RESETS || client->steps & answers->steps & CLOSES)
		erase_conn(&w->key);
}

// supersede takes away a UDP flow through a frontend whose client speaks to the same
// backend directly now, from the same port: by the socket path, or because it knows the
// backend. Nobody says when a flow is over, and answers would be taken for the former's.
// The node's own flows have other ports (stands_apart).
static __always_inline void supersede(struct work *w)
{
	struct conn *answers;

	w->key = reversed(&w->p.t);
	w->key.hook = AT_EGRESS;
	answers = conn_of(&w->key);
	if (!answers || (answers->kind != ANSWERS && answers->kind != MASQ_ANSWERS))
		return;
	w->old.answers = w->key;
	w->old.id = answers->id;
	remove_old();
}

// too_early reports whether a connection would get a port of the node's while it
// isn't known yet which of these netfilter has given to others, answers to which would
// be taken for its own. Its first packet is sent again; a datagram isn't, and risks it.
static __always_inline int too_early(const struct work *w, __u32 own)
{
	return (own || w->d.masquerade) && w->p.t.proto != IPPROTO_UDP && current_phase() == ENTERING;
}

// choose_again finds the first or second choice for a packet from the middle of a connection
// that nobody here knows. A function of its own, so that the verifier looks at it once.
__noinline int choose_again(struct __sk_buff *skb, __u32 which)
{
	struct work *w = work();
	struct frontend *f;

	if (!w)
		return REFUSE;
	__builtin_memset(&w->d, 0, sizeof(w->d));
	f = front_of(&w->p.t, &w->d);
	return f ? resume(f, &w->p.t, origin_of(skb, &w->p.t.src), which == FIRST ? FIRST : SECOND, &w->d) : REFUSE;
}

// go_on is about a packet from the middle of a connection that nobody here knows. With
// stable connections it goes on to the backend that every node would choose first, or, if
// that one's node is this one, second, unless the second one is known here. What has been sent
// on by another node isn't again.
static __always_inline int go_on(struct __sk_buff *skb, struct work *w, __u32 own)
{
	int to, here, stable;
	__u8 steps = RESUMED;

	if (w->p.t.proto != IPPROTO_TCP)
		return TC_ACT_SHOT;
	if (own || w->p.fragment == LATER_FRAGMENT || read_option(skb, &w->p, &w->to))
		return refuse(skb, own);
	to = choose_again(skb, FIRST);
	stable = w->d.resumed;
	here = to != FORWARD || w->d.to.flags & LOCAL;
	if (to == FORWARD && here && adopt())
		return TC_ACT_PIPE;
	if (stable && choose_again(skb, SECOND) == FORWARD) {
		if (w->d.to.flags & LOCAL && adopt())
			return TC_ACT_PIPE;
		if (here) {
			here = w->d.to.flags & LOCAL;
			steps |= LAST;
		}
	}
	if (here || (!(steps & LAST) && choose_again(skb, FIRST) != FORWARD)) {
		if (stable)
			count_stray(STRAY_RESET);
		return refuse(skb, own);
	}
	w->d.steps = steps;
	if (connect(skb, w, own))
		return fail(TABLE_FULL);
	count_stray(STRAY_FORWARDED);
	acquired(w->d.to.id);
	return TC_ACT_PIPE;
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
	if (f && is_midstream(&w->p)) {
		if (answers_opening(&w->p) || relayed(skb))
			return TC_ACT_UNSPEC;
		return go_on(skb, w, own);
	}
	switch (f ? decide(f, &w->p.t, own ? FROM_NODE : origin_of(skb, &w->p.t.src), &w->d)
		  : decide_unknown(&w->p.t.dst, &w->d)) {
	case PASS:
		if (own && w->p.t.proto != IPPROTO_UDP && opens_connection(&w->p))
			reclaim(w);
		if (!own && w->p.t.proto == IPPROTO_UDP)
			supersede(w);
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
