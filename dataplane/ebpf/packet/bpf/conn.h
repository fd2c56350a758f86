// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The connection table of the packet path. It has an entry for every look that
// packets of a connection arrive or leave with, and says what they become:
//
//	              outside          inside the node       outside
//	client's      C:c → V:v   in►  C:c → B:b   out►  N:n → B:b
//	backend's     V:v → C:c  ◄out  B:b → C:c  ◄in    B:b → N:n
//
// C is the client, V the frontend, B the backend, and N, if the connection is
// masqueraded, the node. What the kernel sees between the two hooks, routes and
// tracks, is always the client talking to the backend.
//
// Connections that netfilter translated when the programs came stay with it:
// packets with an entry of theirs pass as they are. The client's entry says what
// netfilter makes of its packets all together, N:n → B:b; the other one is that of
// answers as they come in. kind.h lists all kinds of entries.
//
// Entries of one connection have the same id. They are removed together when none
// of them was used for long enough: see expire.h.
#pragma once

#include "decide.h"
#include "packet.h"

GROWING(conns_2, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, struct tuple, struct conn, 1 << 16);

// TCP connections that the agent wants reset, since their backend is gone.
struct orphan {
	__u64 id;    // the connection's
	__u64 since; // from when on: ktime, ns
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, struct tuple); // of the client's entry
	__type(value, struct orphan);
} orphans SEC(".maps");

// Why packets were dropped that should have gone on: see drops.go.
enum drop_reason {
	TABLE_FULL,    // no room for a connection
	NO_PORT,       // none to masquerade with
	NOT_WRITTEN,   // the packet couldn't be changed
	NO_ROUTE,      // from the node itself to the backend
	NOT_LEARNT,    // an option of direct server return that can't be followed
	CHANGES_HANDS, // the connection is on its way to netfilter, or begins while others are on theirs
	FORGOTTEN,     // netfilter has forgotten the connection that was left to it
	LOST_FRAGMENT, // of a packet whose first hasn't come by
	EVICTED,       // no packet: a connection that had to go, since there is no room
	DROP_REASONS
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DROP_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

// Whose the packets are that have no entry, while another plane takes the
// programs' place, or they take another's: see takeover.go and handover.go.
enum handover_phase {
	IN_FORCE, // the programs'
	ASIDE,    // the other plane's
	ENTERING, // the programs', but from the middle of a connection it's the other's
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} phase SEC(".maps");

static __always_inline enum handover_phase current_phase(void)
{
	__u32 only = 0, *now = bpf_map_lookup_elem(&phase, &only);

	return now ? *now : IN_FORCE;
}

static __always_inline int count_drop(enum drop_reason why)
{
	__u32 k = why;
	__u64 *n = bpf_map_lookup_elem(&drops, &k);

	if (n)
		(*n)++;
	return 1;
}

static __always_inline int fail(enum drop_reason why)
{
	count_drop(why);
	return TC_ACT_SHOT;
}

static __always_inline __u32 seconds(void) { return bpf_ktime_get_ns() / 1000000000; }

static __noinline struct conn *conn_before(const struct tuple *t) { return recall_before(&conns_2, t); }

static __always_inline struct conn *conn_of(const struct tuple *t)
{
	return in(&conns_2, NOW, t) ?: conn_before(t);
}

// deep_conn_of is conn_of for functions that are called by others that are called: the
// kernel lets eight be under way.
static __always_inline struct conn *deep_conn_of(const struct tuple *t) { return recall(&conns_2, t); }

static __noinline void erase_conn(const struct tuple *t) { erase(&conns_2, t); }

// TRANSLATED is what tc_index says of a packet inside the node that has been
// translated as it came in.
#define TRANSLATED 0xfa17

// TRANSLATED_MARK is a bit of such a packet's mark, for netfilter: see sources.go.
#define TRANSLATED_MARK 0x1000

// LEFT is what it says of one that was left to netfilter.
#define LEFT 0xfa18

// kind_of is an entry's kind, be it frozen or not.
static __always_inline __u8 kind_of(const struct conn *c) { return c->kind & ~FROZEN; }

static __always_inline const struct kind_traits *about(const struct conn *c) { return &kinds[kind_of(c)]; }

static __always_inline int has(const struct conn *c, __u8 traits) { return about(c)->traits & traits; }

static __always_inline int is_netfilters(const struct conn *c) { return about(c)->owner == NETFILTERS; }

// is_unrelated reports whether a packet is not of the connection whose entry it found
// as it leaves. A client may have a connection of its own to the backend of a
// masqueraded one, with the same ports; packets of that weren't translated when
// they came in.
static __always_inline int is_unrelated(struct __sk_buff *skb, enum hook hook, const struct conn *c)
{
	return hook == AT_EGRESS && has(c, MASQUERADED) && skb->ingress_ifindex && skb->tc_index != TRANSLATED;
}

static __always_inline struct endpoint destination(const struct tuple *t)
{
	return (struct endpoint){.addr = t->dst, .port = t->dport};
}

// count_packet adds a packet to what is known of a backend.
static __always_inline void count_packet(__u32 id, __u32 bytes)
{
	struct counters *c = counters_of(id);
	if (!c)
		return;
	c->packets++;
	c->bytes += bytes;
}

// partner_key says where the entry of the other direction is; c is found at t.
static __always_inline void partner_key(const struct tuple *t, const struct conn *c, struct tuple *k)
{
	__u8 partner = about(c)->partner;

	reverse(partner == AS_IS || partner == AS_IS_HERE ? t : &c->to, k);
	k->hook = partner == TURNED_HERE || partner == AS_IS_HERE ? t->hook : AT_INGRESS + AT_EGRESS - t->hook;
}

// partner_of is that entry.
static __always_inline struct conn *partner_of(const struct tuple *t, const struct conn *c)
{
	struct tuple k;

	partner_key(t, c, &k);
	return conn_of(&k);
}

// answers_unseen reports whether of a connection only this direction passes by.
static __always_inline int answers_unseen(const struct conn *c) { return about(c)->seen != BOTH_WAYS; }

// memo_of is what an entry remembers of its packets, to know forged ends by: of TCP how
// far the other direction has come, by what is acknowledged, or, if that isn't seen, this
// one; of SCTP the verification tag.
static __always_inline __u16 memo_of(const struct packet *p, const struct conn *c)
{
	return p->t.proto == IPPROTO_TCP && answers_unseen(c) ? p->seq : p->ack;
}

// NEAR is how far an end of a TCP connection may be ahead of what was acknowledged: 4 MB.
#define NEAR 64

static __always_inline int is_near(__u16 seq, __u16 memo) { return (__u16)(seq - memo + 1) <= NEAR + 1; }

// is_believable reports whether a packet that closes or resets a connection is one that
// the other end takes for that (RFC 9293, 3.5.3; RFC 5961; RFC 9260, 8.5). In the opening,
// when little is known, every one is.
static __noinline int is_believable(const struct packet *p, const struct conn *c)
{
	const struct conn *other;
	struct tuple k;

	if (p->fragment == LATER_FRAGMENT || !(p->step & (CLOSES | RESETS)))
		return 1;
	if (answers_unseen(c)) {
		if (!(c->steps & ACKS))
			return 1;
		return p->t.proto == IPPROTO_TCP ? is_near(p->seq, c->memo) : p->ack == c->memo;
	}
	if (p->t.proto == IPPROTO_SCTP && !p->reflected)
		return !(c->steps & ACKS) || p->ack == c->memo;
	partner_key(&p->t, c, &k);
	other = recall(&conns_2, &k);
	if (!other || !(other->steps & ACKS))
		return 1;
	return p->t.proto == IPPROTO_TCP ? is_near(p->seq, other->memo) : p->ack == other->memo;
}

// ended tells the schedulers that a connection is closing: at the client's FIN,
// which comes in any orderly close, or at anybody's RST.
static __always_inline void ended(const struct tuple *t, const struct conn *c, __u8 step)
{
	if (!has(c, COUNTED) || has(c, LED) || c->steps & (CLOSES | RESETS))
		return;
	if (has(c, HOLDS)) {
		released(c->backend);
	} else if (step & RESETS) {
		struct conn *client = partner_of(t, c);

		if (client && !(client->steps & (CLOSES | RESETS)))
			released(c->backend);
	}
}

// goes_on is about a packet of a connection that seemed to have been reset by the same end,
// and wasn't.
static __noinline void goes_on(struct conn *c)
{
	c->steps &= ~RESETS;
	if (has(c, HOLDS) && !(c->steps & CLOSES)) {
		struct state *s = state_of(c->backend);

		if (s)
			__sync_fetch_and_add(&s->active, 1);
	}
}

// touch notes a packet of a connection, which has so many bytes.
static __always_inline void touch(const struct packet *p, struct conn *c, __u32 bytes)
{
	__u32 now = seconds();
	__u8 steps = p->step | USED;

	if (c->seen != now)
		c->seen = now;
	if (steps & (CLOSES | RESETS)) {
		if (is_believable(p, c))
			ended(&p->t, c, p->step);
		else
			steps &= ~(CLOSES | RESETS);
	}
	if (c->steps & RESETS && !(p->step & RESETS))
		goes_on(c);
	if (steps & ACKS && !(p->step & RESETS) && p->fragment != LATER_FRAGMENT && c->memo != memo_of(p, c))
		c->memo = memo_of(p, c);
	if (steps & ~c->steps)
		c->steps |= steps;
	if (has(c, COUNTED))
		count_packet(c->backend, bytes);
}

// is_closed reports whether both ends are through with a connection, so that its
// ports may be used again; c is the client's entry, at t. Of the backend's end nothing
// is known if it answers by another way.
static __always_inline int is_closed(const struct tuple *t, const struct conn *c)
{
	struct conn *answers;

	if (answers_unseen(c) && c->steps & CLOSES)
		return 1;
	answers = partner_of(t, c);
	return !answers || (c->steps | answers->steps) & RESETS || c->steps & answers->steps & CLOSES;
}

// udp_expired reports whether netfilter is about to forget a UDP flow that was left to it,
// if it hasn't; c is the client's entry, at t.
static __always_inline int udp_expired(const struct tuple *t, const struct conn *c)
{
	__u32 now = seconds();
	struct conn *answers;

	if (now - c->seen <= c->memo)
		return 0;
	answers = partner_of(t, c);
	return !answers || now - answers->seen > c->memo;
}

// orphaned reports whether a connection, of which t is the client's entry, has
// lost its backend, and with it its right to live.
static __always_inline int orphaned(const struct tuple *t, const struct conn *c)
{
	struct orphan *o = bpf_map_lookup_elem(&orphans, t);

	return o && o->id == c->id && bpf_ktime_get_ns() >= o->since;
}
