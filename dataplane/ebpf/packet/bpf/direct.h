// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Direct server return. The node that a client's packet came to sends it on with
// the client's address, and says in an option of the IP header which frontend
// it was for. The backend's node takes the option off, and has the backend's
// answers leave in the frontend's name; they don't pass the first node.
//
//	              at the first node           at the backend's node
//	client's      C:c → V:v   in►  C:c → B:b  in►  C:c → B:b
//	backend's                      V:v → C:c ◄out  B:b → C:c
//
// TCP's SYN has the option, and every UDP packet, for which it may be the first
// that arrives, and all of a connection that began at another node (stray.h). What then is too large is the kernel's to cut or to complain
// about; ICMP errors tell the client of a path that is smaller by the option.
#pragma once

#include "begin.h"

// size_on_wire is how large a packet is that leaves, or each of those that it is
// cut into.
static __always_inline __u32 size_on_wire(struct __sk_buff *skb, const struct packet *p)
{
	__u8 offset = 5 << 4;

	if (!skb->gso_size)
		return p->len;
	if (p->t.proto == IPPROTO_UDP)
		return p->l4 - p->l3 + sizeof(struct udphdr) + skb->gso_size;
	if (bpf_skb_load_bytes(skb, p->l4 + 12, &offset, 1))
		return p->len;
	return p->l4 - p->l3 + (offset >> 4) * 4 + skb->gso_size;
}

// hop takes one off the hops that the packet may go. It returns 0 if it may go
// no further.
static __always_inline int hop(struct __sk_buff *skb, const struct packet *p)
{
	__u32 at = p->l3 + (p->v6 ? offsetof(struct ipv6hdr, hop_limit) : offsetof(struct iphdr, ttl));
	struct {
		__u8 ttl, proto;
	} old, new;
	__u16 was, is;

	if (bpf_skb_load_bytes(skb, at, &old, 1) || old.ttl <= 1)
		return 0;
	new.ttl = old.ttl - 1;
	if (p->v6)
		return !bpf_skb_store_bytes(skb, at, &new, 1, BPF_F_RECOMPUTE_CSUM);
	if (bpf_skb_load_bytes(skb, at, &old, sizeof(old)))
		return 0;
	new.proto = old.proto;
	__builtin_memcpy(&was, &old, sizeof(was));
	__builtin_memcpy(&is, &new, sizeof(is));
	return !bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), was, is, sizeof(is)) &&
	       !bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0);
}

// way_to looks up where a packet that looks like t leaves.
static __always_inline long way_to(struct __sk_buff *skb, const struct tuple *t, int v6, struct bpf_fib_lookup *f)
{
	f->ifindex = skb->ifindex;
	f->l4_protocol = t->proto;
	if (v6) {
		f->family = 10; // AF_INET6
		__builtin_memcpy(f->ipv6_src, &t->src, sizeof(t->src));
		__builtin_memcpy(f->ipv6_dst, &t->dst, sizeof(t->dst));
	} else {
		f->family = 2; // AF_INET
		f->ipv4_src = t->src.word[3];
		f->ipv4_dst = t->dst.word[3];
	}
	return bpf_fib_lookup(skb, f, sizeof(*f), 0);
}

// send_on sends a packet, which has been translated already, to its backend's
// node. It doesn't go through this node's kernel, whose connection tracking
// sees one direction only and would call it INVALID, unless that is needed: to
// cut it, or to tell the client why it can't be sent.
__noinline int send_on(struct __sk_buff *skb, __u32 steps)
{
	struct bpf_fib_lookup f = {};
	struct work *w = work();
	struct packet *p;
	long found;

	if (!w)
		return TC_ACT_SHOT;
	p = &w->p;
	if (p->fragment != LATER_FRAGMENT && (steps & RESUMED || opens_connection(p))) {
		int last = !!(steps & LAST);

		if (p->v6 ? announce6(skb, p->l3, &p->t, last) : announce4(skb, p->l3, &p->t, last))
			return fail(NOT_WRITTEN);
		p->l4 += option_size(p->v6);
		p->len += option_size(p->v6);
	}
	f.tot_len = size_on_wire(skb, p);
	found = way_to(skb, &w->to, p->v6, &f);
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH)
		return TC_ACT_UNSPEC;
	if (!hop(skb, p))
		return TC_ACT_UNSPEC;
	return bpf_redirect_neigh(f.ifindex, NULL, 0, 0);
}

// direct_frontend finds the frontend that an option names: one of this node's,
// or, for node ports, the one with the same port at this node's own address.
static __always_inline struct frontend *direct_frontend(struct __sk_buff *skb, int v6, const struct tuple *answer)
{
	struct frontend_key k = {.addr = answer->src, .port = answer->sport, .proto = answer->proto};
	struct frontend *f = find_frontend(&k);

	if (!f && own_address(skb, v6, &k.addr))
		f = find_frontend(&k);
	return f && f->routes[FROM_OUTSIDE].flags & DIRECT_RETURN ? f : NULL;
}

// settled reports whether the place of answers is theirs already, or free.
// Which of two frontends a UDP packet is for the last one says; two TCP
// connections with the same ports at both ends would look alike.
static __always_inline int settled(const struct tuple *key, const struct conn *have, const struct tuple *answer, __u32 client_is_through)
{
	if (!have || key->proto == IPPROTO_UDP || have->steps & RESETS || client_is_through)
		return 1;
	return have->to.sport == answer->sport && have->to.dport == answer->dport && same_address(&have->to.src, &answer->src);
}

// note makes the entries of a connection whose option w->to was read from: that
// of answers, at w->key, and one by which the client's packets are seen.
static __always_inline int note(struct __sk_buff *skb, struct work *w, int own)
{
	struct endpoint to = destination(&w->p.t);
	struct conn *client = conn_of(&w->p.t), *have = conn_of(&w->key);
	struct frontend *f = direct_frontend(skb, w->p.v6, &w->to);
	struct member *m;

	m = f ? member_of(f->routes[FROM_OUTSIDE].pool, &to) : NULL;
	if (!m || !(m->flags & LOCAL))
		return 0;
	if (!settled(&w->key, have, &w->to, client && client->steps & (CLOSES | RESETS)))
		return -1;
	__builtin_memset(&w->c, 0, sizeof(w->c));
	w->c.id = bpf_ktime_get_ns() << 8 | (bpf_get_smp_processor_id() & 0xff);
	w->c.seen = seconds();
	w->c.pool = f->routes[FROM_OUTSIDE].pool;
	w->c.backend = m->id;
	w->c.to = w->to;
	w->c.kind = own ? LED_OWN_ANSWERS : LED_ANSWERS;
	if (insert(BPF_ANY))
		return -1;
	w->made.answers = w->key;
	w->made.id = w->c.id;
	w->c.to = w->p.t;
	w->c.kind = own ? LED_OWN_CLIENTS : LED_CLIENTS;
	w->key = w->p.t;
	return insert(BPF_ANY) || track() ? -1 : 1;
}

// has_option reports whether a packet may have the option.
static __always_inline int has_option(const struct packet *p)
{
	return has_ports(p->t.proto) && p->fragment != LATER_FRAGMENT && p->l4 - p->l3 > ip_header_size(p->v6);
}

enum told { NOTHING, LED_HERE, STRAYED, STRAYED_AGAIN };

// led_here says what the option means of a packet from the middle of a connection, whose
// answers w->to and w->key are: it is one that was LED_HERE, or, if its backend is nobody
// else's, one that has STRAYED, perhaps from another node whose backend had been asked.
static __always_inline int led_here(struct __sk_buff *skb, struct work *w, enum option option)
{
	struct conn *answers = known(w, &w->to), *client;
	struct endpoint to = destination(&w->p.t);
	struct frontend *f;
	struct member *m;

	if (answers) {
		partner_key(&w->key, answers, &w->other);
		client = has(answers, LED) ? NULL : conn_of(&w->other); // or it is found at its own place
		if (client)
			touch(&w->p, client, skb->len);
		return LED_HERE;
	}
	f = direct_frontend(skb, w->p.v6, &w->to);
	m = f ? member_of(f->routes[FROM_OUTSIDE].pool, &to) : NULL;
	if (!f || (m && !(m->flags & LOCAL)))
		return NOTHING;
	return option == THE_LAST_OPTION ? STRAYED_AGAIN : STRAYED;
}

// other_choice puts into w->d.to the backend that comes next for a packet that has strayed:
// the second choice, or, if that is where it went, the first.
__noinline int other_choice(struct __sk_buff *skb)
{
	struct work *w = work();
	struct frontend *f;
	struct tuple *t;

	if (!w)
		return REFUSE;
	f = direct_frontend(skb, w->p.v6, &w->to);
	if (!f)
		return REFUSE;
	t = &w->key;
	reverse(&w->to, t); // as the client sent it
	__builtin_memset(&w->d, 0, sizeof(w->d));
	if (resume(f, t, FROM_OUTSIDE, SECOND, &w->d) == FORWARD &&
	    !(w->d.to.port == w->p.t.dport && same_address(&w->d.to.addr, &w->p.t.dst)))
		return FORWARD;
	if (resume(f, t, FROM_OUTSIDE, FIRST, &w->d) == FORWARD &&
	    !(w->d.to.port == w->p.t.dport && same_address(&w->d.to.addr, &w->p.t.dst)))
		return FORWARD;
	return REFUSE;
}

// dsr_second leads a packet that has strayed to the other choice: TC_ACT_PIPE if there is none.
__noinline int dsr_second(struct __sk_buff *skb)
{
	struct work *w = work();
	struct conn *answers, *client;
	struct packet *p;

	if (!w || w->p.fragment == LATER_FRAGMENT || other_choice(skb) != FORWARD)
		return TC_ACT_PIPE;
	p = &w->p;
	w->c.to = p->t; // as it shall be
	w->c.to.dst = w->d.to.addr;
	w->c.to.dport = w->d.to.port;
	w->c.to.hook = 0;
	reverse(&w->c.to, &w->key);
	w->key.hook = within(OF_NODE, &p->t.src) ? AT_INGRESS : AT_EGRESS;
	if (w->d.to.flags & LOCAL) {
		answers = known(w, &w->to);
		if (!answers)
			return TC_ACT_PIPE;
		partner_key(&w->key, answers, &w->other);
		client = conn_of(&w->other);
		if (client)
			touch(p, client, skb->len);
	}
	w->quoted.t = w->to; // rewrite needs its place
	w->to = w->c.to;
	if (strip(skb, p) || rewrite(skb))
		return fail(NOT_WRITTEN);
	if (w->d.to.flags & LOCAL)
		return TC_ACT_UNSPEC;
	count_stray(STRAY_FORWARDED_AGAIN);
	reverse(&w->quoted.t, &p->t);
	return send_on(skb, RESUMED | LAST);
}

// dsr_reset answers a packet that has strayed, in the frontend's name, which the client knows.
__noinline int dsr_reset(struct __sk_buff *skb)
{
	struct bpf_fib_lookup f = {};
	struct work *w = work();
	struct packet *p;
	long found;

	if (!w || w->p.fragment == LATER_FRAGMENT || strip(skb, &w->p))
		return TC_ACT_SHOT;
	p = &w->p;
	count_stray(STRAY_RESET);
	p->t.dst = w->to.src;
	p->t.dport = w->to.sport;
	p->t.sport = w->to.dport;
	if (p->l4 - p->l3 != ip_header_size(p->v6) || reset(skb, p))
		return TC_ACT_SHOT;
	if (within(OF_NODE, &p->t.src))
		return bpf_redirect_neigh(LOOPBACK, NULL, 0, 0);
	reverse(&p->t, &w->key);
	found = way_to(skb, &w->key, p->v6, &f);
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH)
		return fail(NO_ROUTE);
	return bpf_redirect_neigh(f.ifindex, NULL, 0, 0);
}

// dsr_learn reads the option of a packet that comes in for a backend of this node,
// and takes it off, if it is of a connection that is LED_HERE. A negative number says that
// the packet must not go on.
__noinline int dsr_learn(struct __sk_buff *skb)
{
	struct work *w = work();
	enum option option;
	struct conn *have;
	int own;

	option = w ? read_option(skb, &w->p, &w->to) : NO_OPTION;
	if (!w || option == NO_OPTION)
		return NOTHING;
	own = within(OF_NODE, &w->p.t.src); // has come back to where it was sent from
	w->key = reversed(&w->p.t);
	w->key.hook = own ? AT_INGRESS : AT_EGRESS;
	if (w->p.t.proto == IPPROTO_TCP && !opens_connection(&w->p)) {
		int what = led_here(skb, w, option);

		return what == LED_HERE && strip(skb, &w->p) ? -1 : what;
	}
	have = conn_of(&w->key);
	if (w->p.t.proto != IPPROTO_UDP || !have || !has(have, LED) || have->to.sport != w->to.sport ||
	    have->to.dport != w->to.dport || !same_address(&have->to.src, &w->to.src)) {
		int noted = note(skb, w, own);

		if (noted <= 0)
			return noted;
	}
	return strip(skb, &w->p) ? -1 : LED_HERE;
}

// dsr_superseded reports whether a client opens a connection to the backend itself,
// with the port of one that was learnt of.
static __always_inline int dsr_superseded(const struct packet *p, const struct conn *c)
{
	return has(c, LED) && !has(c, TO_CLIENT) && p->t.proto == IPPROTO_TCP && opens_connection(p);
}

// dsr_forget forgets a connection that was learnt of.
static __always_inline void dsr_forget(const struct packet *p, struct work *w)
{
	w->key = reversed(&p->t);
	w->key.hook = AT_EGRESS;
	erase_conn(&w->key);
	erase_conn(&p->t);
}
