// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Flows that begin at an address and port that a frontend has: a socket of the node has
// bound a node port's number, or a masquerade of others chose it. Their answers look
// like packets for the frontend. So such flows are remembered as they leave, and what
// comes back passes as it is.
#pragma once

#include "begin.h"

// note_outgoing remembers a packet that leaves and isn't ours, if it comes from where a
// frontend is.
__noinline int note_outgoing(void)
{
	struct frontend_key front = {};
	struct work *w = work();
	struct conn *c;

	if (!w)
		return 0;
	front.addr = w->p.t.src;
	front.port = w->p.t.sport;
	front.proto = w->p.t.proto;
	if (!find_frontend(&front) || yielded(&front))
		return 0;
	reverse(&w->p.t, &w->key);
	w->key.hook = AT_INGRESS;
	c = conn_of(&w->key);
	if (c) {
		if (c->kind == OUTGOING)
			c->seen = seconds();
		return 0;
	}
	__builtin_memset(&w->c, 0, sizeof(w->c));
	w->c.id = bpf_ktime_get_ns() << 8 | (bpf_get_smp_processor_id() & 0xff);
	w->c.seen = seconds();
	w->c.to = w->key;
	w->c.kind = OUTGOING;
	w->made.answers = w->key;
	w->made.id = w->c.id;
	return insert(BPF_NOEXIST) ?: track();
}

// leaves_unknown is about a packet without entry that leaves and is for no frontend.
static __always_inline int leaves_unknown(const struct packet *p)
{
	if (has_ports(p->t.proto) && p->fragment != LATER_FRAGMENT && opens_connection(p) && current_phase() == IN_FORCE)
		note_outgoing();
	return TC_ACT_UNSPEC;
}

// answers_outgoing lets the answers to such a flow pass. What begins a connection isn't one.
static __always_inline int answers_outgoing(struct __sk_buff *skb, const struct packet *p, struct conn *c)
{
	if (p->t.proto != IPPROTO_UDP && opens_connection(p)) {
		erase_conn(&p->t);
		return 0;
	}
	touch(p, c, skb->len);
	return 1;
}
