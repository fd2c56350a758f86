// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The end of connections that nobody sees: those that are silent for too long,
// and, when the table is full, those that are worth least. The programs see to it
// themselves with every new connection, so they go on without an agent. While one
// runs, it has them do so with time, too (program collect).
#pragma once

#include "conn.h"

// After which silence a connection has ended, in seconds: kube-proxy's and
// netfilter's defaults (nf_conntrack-sysctl.rst), except for TCP_CLOSED: ports that
// both ends have closed may be used again at once.
enum timeout {
	TCP_RESET = 10,
	UDP_ONCE = 30,
	TCP_OPENING = 60,
	TCP_CLOSED = 120,
	UDP_STREAM = 180,
	DIRECT_CLOSED = 5 * 60, // the client has closed, and the backend's end isn't seen
	TCP_RESUMED = 10 * 60, // may go on at any node, so at this one, too, when it's forgotten
	TCP_HALF_CLOSED = 60 * 60,
	TCP_ESTABLISHED = 24 * 60 * 60,
};

// A queue with all connections. Who takes one out looks at it and puts it back, if
// it hasn't ended: so each has its turn. The agent puts a larger queue in its place
// when the connection table grows (turns.go).
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_QUEUE);
		__uint(max_entries, 1 << 15);
		__uint(key_size, 0);
		__uint(value_size, sizeof(struct tracked));
	});
} tracked_1 SEC(".maps");

static __always_inline void *tracked(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&tracked_1, &only);
}

// timeout_of is the timeout of a connection with these entries. The client's may
// have gone.
static __always_inline __u32 timeout_of(__u8 proto, const struct conn *client, const struct conn *a)
{
	__u8 c = client ? client->steps : 0, s = a->steps;
	int direct = about(a)->seen == CLIENTS_ONLY;
	int answered = s & USED || direct;

	if (about(a)->seen == THESE_ONLY)
		c = s & ~CLOSES;
	if (proto == IPPROTO_UDP)
		return answered ? UDP_STREAM : UDP_ONCE;
	if ((c | s) & RESETS)
		return TCP_RESET;
	if (c & s & CLOSES)
		return TCP_CLOSED;
	if (direct && c & CLOSES)
		return DIRECT_CLOSED;
	if (c & RESUMED)
		return TCP_RESUMED;
	if ((c | s) & CLOSES)
		return TCP_HALF_CLOSED;
	return answered && c & ACKS ? TCP_ESTABLISHED : TCP_OPENING;
}

// worth is what a connection is worth that has this timeout: first of all go those
// that are over, then those that never were answered, then UDP flows.
static __always_inline __u64 worth(__u32 timeout)
{
	switch (timeout) {
	case TCP_RESET:
	case TCP_CLOSED:
		return 0;
	case UDP_ONCE:
	case TCP_OPENING:
	case TCP_RESUMED:
		return 1;
	case UDP_STREAM:
		return 2;
	case TCP_ESTABLISHED:
		return 4;
	}
	return 3;
}

// remove_old removes all entries of the connection w->old.
__noinline int remove_old(void)
{
	struct conn *a, *client, *masqueraded, *back;
	struct work *w = work();

	if (!w)
		return 0;
	a = deep_conn_of(&w->old.answers);
	if (!a || a->id != w->old.id)
		return 0;
	partner_key(&w->old.answers, a, &w->other);
	client = deep_conn_of(&w->other);
	if (client && client->id == w->old.id) {
		if (has(client, COUNTED) && !(client->steps & (CLOSES | RESETS)) && !(a->steps & RESETS))
			released(client->backend);
		erase(&conns_2, &w->other);
	}
	if (kind_of(a) == MASQ_ANSWERS) {
		reverse(&w->old.answers, &w->other);
		w->other.hook = AT_EGRESS;
		masqueraded = deep_conn_of(&w->other);
		if (masqueraded && masqueraded->id == w->old.id) {
			erase(&conns_2, &w->other);
			reverse(&masqueraded->to, &w->other);
			w->other.hook = AT_INGRESS;
			back = deep_conn_of(&w->other);
			if (back && back->id == w->old.id)
				erase(&conns_2, &w->other);
		}
	}
	erase(&conns_2, &w->old.answers);
	return 1;
}

enum fate { LIVES, ENDED, NETFILTER_HAS, NONE_LEFT, MARKED };

// judge says what has become of the connection w->old, and removes it if it has
// ended. With closed, that both ends have closed it is enough. What it is worth
// otherwise is in w->worth.
__noinline int judge(__u32 closed)
{
	struct work *w = work();
	struct conn *a, *client;
	__u32 seen, now = seconds(), timeout;

	if (!w)
		return LIVES;
	a = deep_conn_of(&w->old.answers);
	if (!a || a->id != w->old.id)
		return ENDED;
	partner_key(&w->old.answers, a, &w->other);
	client = deep_conn_of(&w->other);
	if (client && client->id != w->old.id)
		client = NULL; // the client uses its port for another one, or there is none
	seen = client && client->seen > a->seen ? client->seen : a->seen;
	timeout = timeout_of(w->old.answers.proto, client, a);
	if ((now > seen && now - seen > timeout) || (closed && !worth(timeout))) {
		remove_old();
		return ENDED;
	}
	w->worth = worth(timeout) << 32 | seen;
	return is_netfilters(a) ? NETFILTER_HAS : LIVES;
}

enum reason_to_look { NEW_CONNECTION, NO_ROOM, COLLECTION };

// look looks at the next connection of the queue. If there is no room, it holds
// back the one that is worth least (w->least), but not the one that is being made.
__noinline int look(__u32 why)
{
	struct work *w = work();
	void *queue = tracked();
	int fate;

	if (!w || !queue || bpf_map_pop_elem(queue, &w->old))
		return NONE_LEFT;
	if (!w->old.id) { // the agent's, to see when each has had its turn
		if (why != COLLECTION)
			bpf_map_push_elem(queue, &w->old, 0);
		return MARKED;
	}
	fate = judge(0);
	if (fate == ENDED)
		return fate;
	if (why == NO_ROOM && fate == LIVES && w->old.id != w->c.id && w->worth < w->least_worth) {
		w->before = w->least;
		w->least = w->old;
		w->least_worth = w->worth;
		w->old = w->before;
		if (!w->old.id)
			return fate;
	}
	if (bpf_map_push_elem(queue, &w->old, 0) && fate == LIVES)
		remove_old(); // there is no place for it any more
	return fate;
}

// CANDIDATES is how many connections are compared when one has to go.
#define CANDIDATES 32

// make_room removes a connection: one that has ended if there is any among the
// next, or else the one that is worth least.
__noinline int make_room(void)
{
	struct work *w = work();
	void *queue = tracked();
	int fate = LIVES;

	if (!w || !queue)
		return 0;
	w->least.id = 0;
	w->least_worth = ~0ULL;
	for (__u32 i = 0; i < CANDIDATES; i++) {
		fate = look(NO_ROOM);
		if (fate == ENDED || fate == NONE_LEFT)
			break;
	}
	if (!w->least.id)
		return 0;
	w->old = w->least;
	if (fate == ENDED && !bpf_map_push_elem(queue, &w->old, 0))
		return 0;
	remove_old();
	return count_drop(EVICTED);
}

// ROOM_TRIES is how many connections may have to go for an entry: those that
// ended may have had no entries any more.
#define ROOM_TRIES 8

// insert puts the entry w->c at w->key, and makes room for it if the table is full.
// What fails for a moment (-EBUSY, -ENOMEM) is tried again, and no connection has to
// go for it. -EEXIST says that with BPF_NOEXIST there is one.
__noinline int insert(__u32 how)
{
	struct work *w = work();
	long failed;

	if (!w)
		return -ENOENT;
	failed = put(&conns_2, IN_CONNS, &w->key, &w->c, how);
	for (__u32 i = 0; i < ROOM_TRIES && failed && failed != -EEXIST; i++) {
		if (failed == -E2BIG)
			make_room();
		failed = put(&conns_2, IN_CONNS, &w->key, &w->c, how);
	}
	return failed;
}

// COLLECTED is how many of the others are looked at with each new connection: more
// than one, or the queue would never be through.
#define COLLECTED 2

// track puts a new connection, w->made, into the queue.
__noinline int track(void)
{
	struct work *w = work();
	void *queue = tracked();
	long failed;

	if (!w || !queue)
		return -ENOENT;
	for (__u32 i = 0; i < COLLECTED; i++)
		look(NEW_CONNECTION);
	failed = bpf_map_push_elem(queue, &w->made, 0);
	for (__u32 i = 0; i < ROOM_TRIES && failed; i++) {
		if (failed == -E2BIG)
			make_room();
		failed = bpf_map_push_elem(queue, &w->made, 0);
	}
	return failed;
}

// take_port removes the connection that has the masquerading port at w->key, if
// it has ended, or, with closed, if both ends have closed it.
__noinline int take_port(__u32 closed)
{
	struct work *w = work();
	struct conn *back;

	if (!w)
		return 0;
	back = deep_conn_of(&w->key);
	if (!back || kind_of(back) != MASQ_BACK)
		return 0;
	w->old.answers = back->to;
	w->old.answers.hook = AT_EGRESS;
	w->old.id = back->id;
	if (judge(closed) != ENDED)
		return 0;
	erase(&conns_2, &w->key); // if nothing else was left of it
	return 1;
}
