// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Strays: packets from the middle of TCP connections that a node doesn't know, because
// they came in at another one so far. With stable connections (model.Route.Stable) such a
// packet goes on to the backend that every node would choose, with the option of direct
// server return, which tells the backend's node which connection it means (option.h). If that
// node doesn't know the connection, it sends the packet on to the second choice (the
// backend that had come or gone meanwhile, model.Pool.Seconds), with the LAST_OPTION.
// Who gets that knows the connection or resets it.
//
//	              at any node               at the backend's node, which knows it
//	client's      C:c → V:v   in►  C:c → B:b  in►  C:c → B:b
//
// All packets of such a connection have the option, since nobody tells the node where they
// come in whether the backend's node knows it.
#pragma once

#include "option.h"
#include "source.h"

// What becomes of strays: see strays.go.
enum stray {
	STRAY_FORWARDED, // the first packet of each connection that goes on
	STRAY_RESET,     // packets that were answered by a RST
	STRAY_FORWARDED_AGAIN, // packets that went on to the second choice
	STRAYS
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STRAYS);
	__type(key, __u32);
	__type(value, __u64);
} strays SEC(".maps");

static __always_inline void count_stray(enum stray what)
{
	__u32 k = what;
	__u64 *n = bpf_map_lookup_elem(&strays, &k);

	if (n)
		(*n)++;
}

// known finds the entry of answers at w->key, if they are those of a connection that leave
// as answer says, from a backend of this node.
static __always_inline struct conn *known(struct work *w, const struct tuple *answer)
{
	struct conn *c = conn_of(&w->key);

	switch (c ? kind_of(c) : OUTGOING) {
	case ANSWERS:
	case OWN_ANSWERS:
	case LED_ANSWERS:
	case LED_OWN_ANSWERS:
		return c->to.sport == answer->sport && c->to.dport == answer->dport && same_address(&c->to.src, &answer->src) ? c : NULL;
	default:
		return NULL;
	}
}

// adopt makes a connection to a backend of this node one that comes in here, too, if it is
// known: so far another node led it here. It reports whether it is.
__noinline int adopt(void)
{
	struct work *w = work();
	struct conn *answers, *client;

	if (!w)
		return 0;

	w->to = w->p.t;
	w->to.dst = w->d.to.addr;
	w->to.dport = w->d.to.port;
	w->to.hook = 0;
	reverse(&w->p.t, &w->c.to);
	reverse(&w->to, &w->key);
	w->key.hook = AT_EGRESS;
	answers = known(w, &w->c.to);
	if (!answers)
		return 0;
	partner_key(&w->key, answers, &w->other);
	client = conn_of(&w->other);
	w->c = *answers;
	w->c.kind = ANSWERS;
	if (insert(BPF_ANY))
		return 0;
	w->c.steps = client ? client->steps : USED | ACKS;
	w->c.seen = seconds();
	w->c.to = w->to;
	w->c.kind = CLIENTS;
	w->key = w->p.t;
	if (insert(BPF_ANY))
		return 0;
	if (client && client->id == w->c.id)
		erase_conn(&w->other);
	acquired(w->d.to.id);
	return 1;
}
