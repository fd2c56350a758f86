// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Packets of known connections that only pass through this node go their way in the driver,
// before the kernel makes socket buffers of them: what the programs at both interfaces would
// do (tc.c), at once, with the same connection table. A flow may change between the two paths
// at any packet. Everything else passes up (XDP_PASS), as it came, and the programs there
// decide: what begins connections, what stays on this node, what needs an answer.
#pragma once

#include "uplink.h"

// is_served reports whether a UDP flow's backend is still one of those that its frontend
// leads to, as current in tc.c.
static __always_inline int is_served(const struct packet *p, const struct conn *c)
{
	struct frontend_key k = key_of(&p->t);
	struct frontend *f = find_frontend(&k);
	struct endpoint to = destination(&c->to);
	__u32 from = FROM_OUTSIDE;

	if (!f || yielded(&k))
		return 0;
	if (f->routes[FROM_POD].pool != f->routes[FROM_OUTSIDE].pool)
		from = origin_of_source(&p->t.src);
	return from < ORIGINS && member_of(f->routes[from].pool, &to);
}

// comes_in reports whether a packet of the connection that it found as it comes in is
// forwarded here. All others are left to the programs behind.
static __always_inline int comes_in(const struct packet *p, const struct conn *c)
{
	if (c->steps & RESETS)
		return 0;
	switch (c->kind) {
	case MASQ_BACK:
		return 1;
	case CLIENTS:
	case MASQ_CLIENTS:
	case SENT_CLIENTS:
		return p->t.proto == IPPROTO_UDP ? is_served(p, c) : !orphaned(&p->t, c);
	default:
		return 0;
	}
}

// is_frontend reports whether packets that come from here look like answers of a frontend:
// outgoing.h.
static __always_inline int is_frontend(const struct address *a, __be16 port, __u8 proto)
{
	struct frontend_key k = {.addr = *a, .port = port, .proto = proto};

	return find_frontend(&k) != NULL;
}

// leaves_here is the same of the look that it has inside the node, between: c is the entry
// by which it came in, out that by which it leaves, if there is one.
static __always_inline int leaves_here(const struct tuple *between, const struct conn *c, const struct conn *out)
{
	if (!out)
		return c->kind != MASQ_CLIENTS && c->kind != MASQ_BACK && !(between->proto == IPPROTO_UDP && is_frontend(&between->src, between->sport, between->proto));
	if (out->id != c->id || out->steps & RESETS)
		return 0;
	return (c->kind == MASQ_CLIENTS && out->kind == MASQ_LEAVING) || (c->kind == MASQ_BACK && out->kind == MASQ_ANSWERS);
}

// route finds where a packet leaves that looks like t inside the node: at an interface that
// sends for us, to a neighbour that is known, as a whole.
static __always_inline int route(struct xdp_md *ctx, const struct headers *h, int v6, const struct tuple *t, __u16 len, struct bpf_fib_lookup *f)
{
	struct uplink *out;

	f->ifindex = ctx->ingress_ifindex;
	f->l4_protocol = t->proto;
	f->sport = t->sport;
	f->dport = t->dport;
	f->tot_len = len;
	if (v6) {
		f->family = 10; // AF_INET6
		f->flowinfo = *(__be32 *)h->v6 & bpf_htonl(0x0fffffff);
		__builtin_memcpy(f->ipv6_src, &t->src, sizeof(t->src));
		__builtin_memcpy(f->ipv6_dst, &t->dst, sizeof(t->dst));
	} else {
		f->family = 2; // AF_INET
		f->tos = h->v4->tos;
		f->ipv4_src = t->src.word[3];
		f->ipv4_dst = t->dst.word[3];
	}
	if (bpf_fib_lookup(ctx, f, sizeof(*f), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	out = uplink_of(f->ifindex);
	return out && out->flags & SENDS;
}

// send lets a frame go that has been written. veth doesn't wake its other end for XDP_TX, unless
// that has a program, too (veth_xdp_flush in drivers/net/veth.c).
static __always_inline int send(struct xdp_md *ctx, const struct uplink *in, struct ethhdr *eth, const struct bpf_fib_lookup *f)
{
	count_driven(SENT);
	__builtin_memcpy(eth->h_dest, f->dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, f->smac, ETH_ALEN);
	return f->ifindex == ctx->ingress_ifindex && !(in->flags & VETH) ? XDP_TX : bpf_redirect(f->ifindex, 0);
}

// Behind the Ethernet header of a packet with the option of direct server return.
struct announced4 {
	struct iphdr ip;
	struct option4 o;
};

struct announced6 {
	struct ipv6hdr ip;
	struct option6 o;
} __attribute__((packed));

// make_room4 puts in front of a packet what there is to be instead of its headers: those,
// and the option; front is what it looked like. The address and port are still the old ones.
static __always_inline int make_room4(struct xdp_md *ctx, const struct tuple *front, int last)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct announced4 a = {
		.o.type = DIRECT_OPTION, .o.len = sizeof(a.o), .o.magic = last ? bpf_htons(LAST_MAGIC) : bpf_htons(DIRECT_MAGIC),
		.o.addr = front->dst.word[3], .o.port = front->dport, .o.client = front->sport,
	};
	struct ethhdr eth;

	if (data + ETH_HLEN + sizeof(a.ip) > end)
		return 0;
	__builtin_memcpy(&eth, data, sizeof(eth));
	__builtin_memcpy(&a.ip, data + ETH_HLEN, sizeof(a.ip));
	a.ip.ihl += sizeof(a.o) / 4;
	a.ip.tot_len = bpf_htons(bpf_ntohs(a.ip.tot_len) + sizeof(a.o));
	a.ip.check = 0;
	a.ip.check = ~folded(bpf_csum_diff(NULL, 0, (__be32 *)&a, sizeof(a), 0));
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(a.o)))
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + sizeof(a) > end)
		return -1;
	__builtin_memcpy(data, &eth, sizeof(eth));
	__builtin_memcpy(data + ETH_HLEN, &a, sizeof(a));
	return 1;
}

static __always_inline int make_room6(struct xdp_md *ctx, const struct tuple *front, int last)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct announced6 a = {
		.o.words = sizeof(a.o) / 8 - 1, .o.type = last ? LAST_OPTION : DIRECT_OPTION, .o.len = sizeof(a.o) - 4,
		.o.addr = front->dst, .o.port = front->dport, .o.client = front->sport,
	};
	struct ethhdr eth;

	if (data + ETH_HLEN + sizeof(a.ip) > end)
		return 0;
	__builtin_memcpy(&eth, data, sizeof(eth));
	__builtin_memcpy(&a.ip, data + ETH_HLEN, sizeof(a.ip));
	a.o.next = a.ip.nexthdr;
	a.ip.nexthdr = IPPROTO_DSTOPTS;
	a.ip.payload_len = bpf_htons(bpf_ntohs(a.ip.payload_len) + sizeof(a.o));
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(a.o)))
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN + sizeof(a) > end)
		return -1;
	__builtin_memcpy(data, &eth, sizeof(eth));
	__builtin_memcpy(data + ETH_HLEN, &a, sizeof(a));
	return 1;
}

// find_behind finds the headers of a packet that has the option now.
static __always_inline int find_behind(struct xdp_md *ctx, struct headers *h, int v6, __u8 proto)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 size = v6 ? sizeof(struct announced6) : sizeof(struct announced4);

	h->eth = data;
	h->v4 = data + ETH_HLEN;
	h->v6 = data + ETH_HLEN;
	h->l4 = data + ETH_HLEN + size;
	h->check = h->l4 + (proto == IPPROTO_TCP ? checksum_at(IPPROTO_TCP) : checksum_at(IPPROTO_UDP));
	barrier_var(h->check); // or the compiler knows the comparison's outcome, and the verifier doesn't
	return h->l4 + sizeof(struct udphdr) <= end && (void *)(h->check + 1) <= end;
}

// forward sends a packet of a known connection on; XDP_PASS leaves it to the others.
static __always_inline int forward(struct xdp_md *ctx, const struct uplink *in, int v6)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct bpf_fib_lookup f = {};
	struct packet p = {};
	struct headers h = {};
	struct conn *c, *out;
	struct tuple old, to;
	__u32 bytes, option = 0;
	__u8 steps;

	if (!find_headers(data, end, v6, &h, &p) || p.step & BEGINS)
		return XDP_PASS;
	if (in->flags & VETH && is_unfinished(&h, &p, v6))
		return XDP_PASS;
	p.t.hook = AT_INGRESS;
	c = conn_of(&p.t);
	if (!c || !comes_in(&p, c))
		return XDP_PASS;
	old = p.t;
	steps = c->steps;
	if (c->kind == SENT_CLIENTS && (steps & RESUMED || p.t.proto == IPPROTO_UDP))
		option = option_size(v6);
	bytes = bpf_xdp_get_buff_len(ctx);
	if (ETH_HLEN + p.len > bytes)
		return XDP_PASS;
	to = c->to;
	to.hook = AT_EGRESS;
	out = conn_of(&to);
	if (!leaves_here(&to, c, out) || !route(ctx, &h, v6, &to, p.len + option, &f))
		return XDP_PASS;
	if (option) {
		int made = v6 ? make_room6(ctx, &old, !!(steps & LAST)) : make_room4(ctx, &old, !!(steps & LAST));

		if (made <= 0)
			return made ? XDP_ABORTED : XDP_PASS;
		if (!find_behind(ctx, &h, v6, old.proto))
			return XDP_ABORTED;
	}
	touch(&p, c, bytes);
	if (out) {
		p.t = to;
		touch(&p, out, bytes);
		to = out->to;
	}
	write_headers(&h, v6, &old, &to);
	return send(ctx, in, h.eth, &f);
}

// in_driver is the program.
static __always_inline int in_driver(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct uplink *in = uplink_of(ctx->ingress_ifindex);
	struct ethhdr *eth = data;

	if (!in || !(in->flags & TAKES) || (void *)(eth + 1) > end || !is_for(data, in))
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return forward(ctx, in, 0);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return forward(ctx, in, 1);
	return XDP_PASS;
}
