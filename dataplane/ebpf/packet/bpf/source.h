// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Masquerading: which address and port of the node a connection gets. Ports come
// from a range of which the node's own sockets get none by themselves; one that
// a socket has taken all the same is left alone.
#pragma once

#include "expire.h"

#include <linux/errno.h>

// PORT_TRIES is how many ports are tried. From the middle on, those of connections that
// both ends have closed will do.
#define PORT_TRIES 32

enum link_flags { OF_PODS = 1 };

// What there is to know of an interface; number 0 stands for all others.
struct link {
	__u32 flags;
	__be32 ip4; // the node's addresses for packets that leave through it
	struct address ip6;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct link);
} links SEC(".maps");

volatile const __u16 port_low = 10000, port_count = 20000;

static __always_inline struct link *link_of(__u32 ifindex)
{
	struct link *l = bpf_map_lookup_elem(&links, &ifindex);
	__u32 all = 0;

	return l ?: bpf_map_lookup_elem(&links, &all);
}

static __always_inline enum origin origin_of(struct __sk_buff *skb, const struct address *src)
{
	struct link *l = link_of(skb->ifindex);

	return l && l->flags & OF_PODS ? FROM_POD : origin_of_source(src);
}

// own_address is the node's address for what leaves through this interface; 0
// if it has none of that family.
static __always_inline int own_address(struct __sk_buff *skb, int v6, struct address *a)
{
	struct link *l = link_of(skb->ifindex);

	if (!l)
		return 0;
	if (v6)
		*a = l->ip6;
	else
		*a = mapped(l->ip4);
	return a->word[0] | a->word[1] | a->word[3];
}

static __always_inline int is_loopback(const struct address *a)
{
	if (is_mapped(a))
		return (a->word[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return !(a->word[0] | a->word[1] | a->word[2]) && a->word[3] == bpf_htonl(1);
}

// sock_tuple is t as the kernel looks for sockets by it; size is what it has of that.
static __always_inline struct bpf_sock_tuple sock_tuple(int v6, const struct tuple *t, __u32 *size)
{
	struct bpf_sock_tuple k = {};

	*size = v6 ? sizeof(k.ipv6) : sizeof(k.ipv4);
	if (v6) {
		__builtin_memcpy(k.ipv6.saddr, &t->src, sizeof(t->src));
		__builtin_memcpy(k.ipv6.daddr, &t->dst, sizeof(t->dst));
		k.ipv6.sport = t->sport;
		k.ipv6.dport = t->dport;
	} else {
		k.ipv4.saddr = t->src.word[3];
		k.ipv4.daddr = t->dst.word[3];
		k.ipv4.sport = t->sport;
		k.ipv4.dport = t->dport;
	}
	return k;
}

// taken reports whether a socket of the node would answer to t.
static __always_inline int taken(struct __sk_buff *skb, int v6, const struct tuple *t)
{
	__u32 size;
	struct bpf_sock_tuple k = sock_tuple(v6, t, &size);
	struct bpf_sock *s;

	if (t->proto == IPPROTO_TCP)
		s = bpf_skc_lookup_tcp(skb, &k, size, BPF_F_CURRENT_NETNS, 0);
	else if (t->proto == IPPROTO_UDP)
		s = bpf_sk_lookup_udp(skb, &k, size, BPF_F_CURRENT_NETNS, 0);
	else
		return 0; // nothing finds those of SCTP; the range has to do
	if (!s)
		return 0;
	bpf_sk_release(s);
	return 1;
}

// relayed reports whether a packet belongs to a connection that a process of the
// node has accepted: the userspace mode's relay, while it retires.
__noinline int relayed(struct __sk_buff *skb)
{
	struct work *w = work();
	struct bpf_sock_tuple k;
	struct bpf_sock *s;
	__u32 size, state;

	if (!w || w->p.t.proto != IPPROTO_TCP)
		return 0;
	k = sock_tuple(w->p.v6, &w->p.t, &size);
	s = bpf_skc_lookup_tcp(skb, &k, size, BPF_F_CURRENT_NETNS, 0);
	if (!s)
		return 0;
	state = s->state;
	bpf_sk_release(s);
	return state != BPF_TCP_LISTEN;
}

// random_port is another each time, since ports that are taken may lie side by side.
static __always_inline __be16 random_port(void)
{
	__u32 n = port_count;
	return bpf_htons(port_low + bpf_get_prandom_u32() % (n ?: 1));
}

// masquerade gives a connection, of which this is the first packet to leave, its
// address and port. It returns 0 if there is none left.
__noinline int masquerade(struct __sk_buff *skb)
{
	struct work *w = work();
	struct tuple *back;
	struct conn *c;

	if (!w)
		return 0;
	c = conn_of(&w->p.t);
	if (!c)
		return 0;
	back = &w->key;
	*back = w->to = reversed(&w->p.t);
	w->c = *c;
	w->c.to = w->to;
	w->c.kind = MASQ_BACK;
	w->c.steps = 0;
	back->hook = AT_INGRESS;
	if (!own_address(skb, w->p.v6, &back->dst))
		return 0;
	for (__u32 i = 0; i < PORT_TRIES; i++) {
		long failed;

		back->dport = random_port();
		if (taken(skb, w->p.v6, back))
			continue;
		failed = insert(BPF_NOEXIST);
		if (failed == -EEXIST && take_port(i >= PORT_TRIES / 2))
			failed = insert(BPF_NOEXIST);
		if (failed == -EEXIST)
			continue;
		if (failed)
			return 0;
		c->to = reversed(back);
		c->kind = MASQ_LEAVING;
		return 1;
	}
	return 0;
}
