// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The packet path: programs at both ends of every interface of the node. conn.h
// says what they make of packets.

#include "direct.h"
#include "fragment.h"
#include "outgoing.h"
#include "xdp.h"

#include <linux/if_packet.h>

// current reports whether a connection's backend is still one of those that its
// frontend leads to, draining ones included.
static __always_inline int current(struct __sk_buff *skb, const struct packet *p, const struct conn *c)
{
	struct frontend_key k = key_of(&p->t);
	struct frontend *f = find_frontend(&k);
	struct endpoint to = destination(&c->to);
	__u32 from;

	if (!f || yielded(&k))
		return 0;
	from = has(c, OF_NODE_SOCKET) ? FROM_NODE : origin_of(skb, &p->t.src);
	return from < ORIGINS && member_of(f->routes[from].pool, &to);
}

// is_lost reports whether a connection, c at p's place, is to be reset: its deadline has
// passed, and its backend hasn't come back meanwhile.
static __noinline int is_lost(struct __sk_buff *skb, const struct packet *p, const struct conn *c)
{
	if (!orphaned(&p->t, c))
		return 0;
	if (!current(skb, p, c))
		return 1;
	bpf_map_delete_elem(&orphans, &p->t);
	return 0;
}

// outdated reports whether a packet of the client begins a new connection
// although there is an entry for it. UDP has no connections: a flow moves as
// soon as its backend is gone.
static __always_inline int outdated(struct __sk_buff *skb, const struct packet *p, const struct conn *c)
{
	if (!has(c, HOLDS) || !opens_connection(p))
		return 0;
	return !current(skb, p, c) || (p->t.proto != IPPROTO_UDP && (c->steps & RESUMED || is_closed(&p->t, c)));
}

// stale_reply reports whether a packet isn't an answer of the connection whose entry it
// found: one that is over, from a port that the client has used again to speak to the
// backend directly. It begins that connection, and takes the entries away.
static __always_inline int stale_reply(struct work *w, const struct packet *p, const struct conn *c)
{
	struct conn *client;

	if (c->kind != ANSWERS && c->kind != OWN_ANSWERS && c->kind != MASQ_ANSWERS && c->kind != MASQ_BACK)
		return 0;
	if ((p->step & (BEGINS | ACKS)) != (BEGINS | ACKS) || !c->steps)
		return 0; // the first answer of all
	client = partner_of(&p->t, c);
	if (client && client->id == c->id && !((c->steps | client->steps) & RESETS || c->steps & client->steps & CLOSES))
		return 0;
	w->old.answers = c->kind == MASQ_BACK ? c->to : p->t;
	w->old.id = c->id;
	remove_old();
	erase_conn(&p->t);
	return 1;
}

// redirect_to_backend sends a packet of the node itself, which was on its way to a
// frontend, to its backend.
__noinline int redirect_to_backend(struct __sk_buff *skb)
{
	struct bpf_fib_lookup f = {};
	struct work *w = work();
	long found;

	if (!w)
		return TC_ACT_SHOT;
	found = way_to(skb, &w->to, w->p.v6, &f);
	if (found == BPF_FIB_LKUP_RET_NOT_FWDED) // the node itself
		return bpf_redirect_neigh(LOOPBACK, NULL, 0, 0);
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH)
		return fail(NO_ROUTE);
	return bpf_redirect_neigh(f.ifindex, NULL, 0, 0);
}

// translate does to a packet what its entry says. Answers to the node's own sockets
// come home over the loopback, where the kernel knows their way without asking
// whether their source may have come in here (rp_filter, martian sources).
static __always_inline int translate(struct __sk_buff *skb, struct work *w, struct conn *c)
{
	__u8 kind = c->kind, steps = c->steps;

	if (w->p.t.proto == IPPROTO_TCP && has(c, HOLDS) && is_lost(skb, &w->p, c))
		return refuse(skb, kind == OWN_CLIENTS);
	if (kind == MASQ_UNNAMED && !masquerade(skb))
		return fail(NO_PORT);
	touch(&w->p, c, skb->len);
	skb->tc_index = TRANSLATED;
	skb->mark = w->p.t.hook == AT_INGRESS ? skb->mark | TRANSLATED_MARK : skb->mark & ~TRANSLATED_MARK;
	w->to = c->to;
	if (kind == LED_CLIENTS) // looks right already
		return TC_ACT_UNSPEC;
	if (kind != LED_OWN_CLIENTS && rewrite(skb))
		return fail(NOT_WRITTEN);
	switch (kind) {
	case SENT_CLIENTS:
		return send_on(skb, steps);
	case OWN_CLIENTS:
	case LED_OWN_CLIENTS:
		return redirect_to_backend(skb);
	case OWN_ANSWERS:
	case LED_OWN_ANSWERS:
		return bpf_redirect_neigh(LOOPBACK, NULL, 0, 0);
	default:
		return TC_ACT_UNSPEC;
	}
}

// ends reports whether a packet of the client doesn't belong to the connection of
// netfilter's that it looks like. What comes before the client's first ACK may be its
// first packet again.
static __always_inline int ends(struct __sk_buff *skb, const struct packet *p, const struct conn *c)
{
	if (kind_of(c) != NETFILTER_CLIENTS || !opens_connection(p))
		return 0; // what is the node's own, netfilter has translated already
	return !current(skb, p, c) || (p->t.proto == IPPROTO_UDP ? udp_expired(&p->t, c) : c->steps & (ACKS | CLOSES | RESETS));
}

// pass_to_netfilter lets a packet of a connection pass that netfilter translates; or
// TC_ACT_PIPE, if it begins another.
__noinline int pass_to_netfilter(struct __sk_buff *skb)
{
	struct work *w = work();
	struct conn *c;

	if (!w)
		return TC_ACT_SHOT;
	c = conn_of(&w->p.t);
	if (!c || ends(skb, &w->p, c))
		return TC_ACT_PIPE;
	if (w->p.t.proto == IPPROTO_TCP && kind_of(c) == NETFILTER_CLIENTS && is_lost(skb, &w->p, c))
		return refuse(skb, 0);
	touch(&w->p, c, skb->len);
	skb->tc_index = LEFT;
	return TC_ACT_UNSPEC;
}

// forgotten is about packets that were left to netfilter, and leave. If it hasn't
// translated one, it has forgotten the connection.
__noinline int forgotten(void)
{
	struct work *w = work();
	struct frontend_key k;

	if (!w)
		return TC_ACT_SHOT;
	k = key_of(&w->p.t);
	if (!has_ports(w->p.t.proto) || !find_frontend(&k))
		return TC_ACT_UNSPEC;
	w->key = w->p.t;
	w->key.hook = AT_INGRESS;
	erase_conn(&w->key);
	return fail(FORGOTTEN);
}

// owned_by_other_proxy reports whether a packet without entry is another plane's.
static __always_inline int owned_by_other_proxy(const struct packet *p)
{
	enum handover_phase now = current_phase();
	struct decision d = {};

	return now == ASIDE || (now == ENTERING && is_midstream(p) && front_of(&p->t, &d));
}

// pass_on leaves a packet to the other plane. If it begins a new connection from the
// port of one that is over, whose entry is still there, what follows is not to go
// that entry's way.
static __always_inline int pass_on(const struct packet *p, const struct conn *c)
{
	if (c)
		erase_conn(&p->t);
	return TC_ACT_UNSPEC;
}

// unknown_fragment is about fragments of which the first hasn't come by: none
// may reach an address of Services.
static __always_inline int unknown_fragment(const struct packet *p)
{
	return reserved(&p->t.dst) && !within(EXEMPT, &p->t.dst) ? fail(LOST_FRAGMENT) : TC_ACT_UNSPEC;
}

#define VLAN_ID 0x0fff

// is_of_vlan reports whether a frame is seen again at the interface of its VLAN. VLAN 0
// is none: such a tag has a priority only (IEEE 802.1Q, 9.6).
static __always_inline int is_of_vlan(const struct __sk_buff *skb)
{
	return skb->vlan_present && skb->vlan_tci & VLAN_ID;
}

// handle is both programs: they differ in what begins there.
static __always_inline int handle(struct __sk_buff *skb, __u32 l3, enum hook hook)
{
	struct work *w = work();
	struct conn *c;
	struct packet *p;
	int told = NOTHING;

	if (!w || is_of_vlan(skb) || !parse(skb, l3))
		return TC_ACT_UNSPEC;
	p = &w->p;
	p->t.hook = hook;
	if (is_icmp(p) && is_error(p))
		return translate_error(skb) < 0 ? fail(NOT_WRITTEN) : TC_ACT_UNSPEC;
	if (p->fragment != WHOLE && has_ports(p->t.proto) && !ports_of_fragment(p))
		return unknown_fragment(p);
	if (hook == AT_INGRESS && has_option(p)) {
		told = dsr_learn(skb);
		if (told < 0)
			return fail(NOT_LEARNT);
		if (told == STRAYED) {
			int verdict = dsr_second(skb);

			return verdict == TC_ACT_PIPE ? dsr_reset(skb) : verdict;
		}
		if (told == STRAYED_AGAIN)
			return dsr_reset(skb);
	}
	c = conn_of(&p->t);
	if (c && !told && dsr_superseded(p, c)) {
		dsr_forget(p, w);
		return TC_ACT_UNSPEC;
	}
	if (c && c->kind == OUTGOING) {
		if (answers_outgoing(skb, p, c))
			return TC_ACT_UNSPEC;
		c = NULL;
	}
	if (c && (is_unrelated(skb, hook, c) || stale_reply(w, p, c)))
		return TC_ACT_UNSPEC;
	if (c && (c->kind & FROZEN || is_netfilters(c))) {
		int verdict = c->kind & FROZEN ? fail(CHANGES_HANDS) : pass_to_netfilter(skb);

		if (verdict != TC_ACT_PIPE)
			return verdict;
		c = NULL;
	}
	if (!c || outdated(skb, p, c)) {
		int verdict;

		if (hook == AT_EGRESS && skb->ingress_ifindex) // decided about when it came in
			return skb->tc_index == LEFT ? forgotten() : leaves_unknown(p);
		if (owned_by_other_proxy(p))
			return pass_on(p, c);
		verdict = decide_first(skb, hook == AT_EGRESS);
		if (hook == AT_EGRESS && verdict == TC_ACT_UNSPEC)
			return leaves_unknown(p);
		if (verdict != TC_ACT_PIPE)
			return verdict;
		c = conn_of(&p->t);
		if (!c)
			return fail(TABLE_FULL);
	}
	return translate(skb, w, c);
}

// ingress leaves frames alone that are for another machine: a switch floods them, or
// somebody listens to all (promiscuous mode).
SEC("tc")
int ingress(struct __sk_buff *skb)
{
	return skb->pkt_type == PACKET_OTHERHOST ? TC_ACT_UNSPEC : handle(skb, ETH_HLEN, AT_INGRESS);
}

SEC("tc")
int egress(struct __sk_buff *skb) { return handle(skb, ETH_HLEN, AT_EGRESS); }

// Interfaces without link-layer header, tunnels for instance.
SEC("tc")
int ingress_l3(struct __sk_buff *skb) { return handle(skb, 0, AT_INGRESS); }

SEC("tc")
int egress_l3(struct __sk_buff *skb) { return handle(skb, 0, AT_EGRESS); }

// bridged is at the ports of a bridge, as their packets leave. What is routed has been
// handled at the bridge's own interface. But what a backend answers a client at another
// port goes from port to port: that is translated here, and nothing else.
SEC("tc")
int bridged(struct __sk_buff *skb)
{
	struct work *w = work();
	struct packet *p;
	struct conn *c;

	if (!w || is_of_vlan(skb) || !parse(skb, ETH_HLEN))
		return TC_ACT_UNSPEC;
	p = &w->p;
	p->t.hook = AT_EGRESS;
	if (is_icmp(p) && is_error(p))
		return translate_error(skb) < 0 ? fail(NOT_WRITTEN) : TC_ACT_UNSPEC;
	if (!has_ports(p->t.proto) || (p->fragment != WHOLE && !ports_of_fragment(p)))
		return TC_ACT_UNSPEC;
	c = conn_of(&p->t);
	if (!c) {
		if (p->t.proto == IPPROTO_UDP && skb->tc_index != TRANSLATED)
			supersede(w);
		return TC_ACT_UNSPEC;
	}
	if (!has(c, TO_CLIENT) || is_netfilters(c) || is_unrelated(skb, AT_EGRESS, c) || stale_reply(w, p, c))
		return TC_ACT_UNSPEC;
	return c->kind & FROZEN ? fail(CHANGES_HANDS) : translate(skb, w, c);
}

// What the node sends to itself leaves at the loopback and nowhere else: answers
// of its own processes to its own sockets, too.
SEC("tc")
int loopback(struct __sk_buff *skb)
{
	struct work *w = work();
	struct conn *c;

	if (!w || !parse(skb, ETH_HLEN))
		return TC_ACT_UNSPEC;
	w->p.t.hook = AT_INGRESS;
	c = conn_of(&w->p.t);
	if (!c || (c->kind != OWN_ANSWERS && c->kind != LED_OWN_ANSWERS))
		return handle(skb, ETH_HLEN, AT_EGRESS);
	touch(&w->p, c, skb->len);
	w->to = c->to;
	return rewrite(skb) ? fail(NOT_WRITTEN) : TC_ACT_UNSPEC;
}

// At the driver of an interface, before all others.
SEC("xdp.frags")
int fairway_xdp(struct xdp_md *ctx) { return in_driver(ctx); }

// What collect returns.
enum collected { EACH_HAD_ITS_TURN = 1, NETFILTER_HAS_SOME = 2 };

// collect is run by the agent (BPF_PROG_TEST_RUN): it removes those of the next 256
// connections that have ended. When all had their turn is known by a mark that the
// agent put into the queue.
SEC("tc")
int collect(struct __sk_buff *skb)
{
	int found = 0;

	for (__u32 i = 0; i < 256; i++) {
		int fate = look(COLLECTION);

		if (fate == NETFILTER_HAS)
			found |= NETFILTER_HAS_SOME;
		if (fate == NONE_LEFT || fate == MARKED)
			return found | EACH_HAD_ITS_TURN;
	}
	return found;
}

// What the agent has the numbers of, too (bpf2go -type).
const struct {
	enum hook hook;
	enum step step;
	enum timeout timeout;
	enum handover_phase phase;
	enum drop_reason drop_reason;
	enum stray stray;
	enum uplink_flags uplink_flags;
	enum driver_count driver_count;
	enum collected collected;
} numbers SEC(".rodata");

// bpf_fib_lookup is for programs under the GPL; these are under either license.
char _license[] SEC("license") = "Dual BSD/GPL";
