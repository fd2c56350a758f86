// SPDX-License-Identifier: Apache-2.0
//
// The socket path: connections of the node's processes and pods get their
// backend when they are made, and no packet of theirs is touched.
//
// It takes only what it can do as the model says; everything else goes on
// unchanged to the packet path, which sees it at the interface: what is refused
// or dropped, frontends that let in certain sources only (the source isn't
// known yet), pods' connections that are masqueraded; and all TCP connections while
// IPVS has virtual servers for frontends.

#include "decide.h"

// The network namespace of the node; 0 stands for the initial one.
volatile const __u64 node_netns;

// Sockets that were connected to a frontend, by their cookies.
struct socket {
	struct frontend_key front;
	struct endpoint to;
	__u32 pool;
	__u32 backend;
};

GROWING(sockets_2, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, __u64, struct socket, 1 << 14);

// How many sockets found no room there, and were left to the packet path.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} overflow SEC(".maps");

// Whether TCP is left to the packet path for the time being: see defer.go.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} defer_tcp SEC(".maps");

// When connections of sockets end whose backend is gone (ktime, ns), by their cookies: the
// agent's, which another process goes on with. See deadlines.go.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, __u64);
	__type(value, __u64);
} deadlines SEC(".maps");

static __always_inline int defers_tcp(void)
{
	__u32 only = 0, *now = bpf_map_lookup_elem(&defer_tcp, &only);

	return now && *now;
}

static __always_inline void count_overflow(void)
{
	__u32 only = 0;
	__u64 *n = bpf_map_lookup_elem(&overflow, &only);

	if (n)
		(*n)++;
}

// What an unconnected UDP socket sends to a frontend goes to one backend, as
// long as the pool has it; answers come from the frontend.
struct flow_key {
	__u64 cookie;
	struct frontend_key front;
	__u32 pad;
};

struct flow {
	__u32 pool;
	struct endpoint to;
};

GROWING(flows_2, BPF_MAP_TYPE_LRU_HASH, 0, struct flow_key, struct flow, 1 << 13);

struct answer_key {
	__u64 cookie;
	struct endpoint from;
	__u32 pad;
};

GROWING(answers_2, BPF_MAP_TYPE_LRU_HASH, 0, struct answer_key, struct frontend_key, 1 << 13);

static __always_inline enum origin origin_of(struct bpf_sock_addr *ctx)
{
	__u64 node = node_netns ?: bpf_get_netns_cookie(NULL);
	return bpf_get_netns_cookie(ctx) == node ? FROM_NODE : FROM_POD;
}

// client_of stands for the client's address: sockets of a network namespace
// are one client. (It begins with the discard-only prefix of RFC 6666, so it
// is nobody's address.)
static __always_inline struct address client_of(struct bpf_sock_addr *ctx)
{
	__u64 netns = bpf_get_netns_cookie(ctx);
	return (struct address){{bpf_htonl(0x01000000), 0, netns >> 32, netns}};
}

// lets_in_itself reports whether a frontend at an address of the node lets that
// very address in, from which the node's sockets reach it.
static __always_inline int lets_in_itself(const struct frontend *f, const struct address *a)
{
	return within(OF_NODE, a) && within(f->id, a);
}

static __always_inline int same_route(const struct route *a, const struct route *b)
{
	return a->pool == b->pool && a->flags == b->flags;
}

// pods_are_known reports whether the settings recognise this node's pods by addresses
// of this family. If not, only the packet path can tell pods from others.
static __always_inline int pods_are_known(const struct address *dst)
{
	return within(is_mapped(dst) ? PODS_KNOWN4 : PODS_KNOWN6, dst);
}

// is_packet_paths reports whether only the packet path, which sees the client's address, can
// tell which route is the client's. A socket has no address yet, and its network namespace
// says only that it isn't the node's own. A container that isn't a pod must not get another
// pool than it would as a packet. It may keep its address where a packet would be
// masqueraded, or pods' connections would lose this path wherever pods are told from others.
static __always_inline int is_packet_paths(const struct frontend *f, const struct address *dst)
{
	const struct route *pod = &f->routes[FROM_POD], *other = &f->routes[FROM_OUTSIDE];

	return pod->pool != other->pool || (!same_route(pod, other) && !pods_are_known(dst));
}

// pick decides about a connection from a socket to a frontend, and reports whether
// the socket path takes it.
static __always_inline int pick(struct bpf_sock_addr *ctx, const struct frontend *f, struct tuple *t, struct decision *d)
{
	enum origin origin = origin_of(ctx);
	const struct route *r = origin == FROM_NODE ? &f->routes[FROM_NODE] : &f->routes[FROM_POD];
	struct pool *p;

	if (t->proto == IPPROTO_TCP && defers_tcp())
		return 0;
	if (f->flags & RESTRICTED && !(origin == FROM_NODE && lets_in_itself(f, &t->dst)))
		return 0;
	if (origin != FROM_NODE && is_packet_paths(f, &t->dst))
		return 0;
	if (r->flags & MASQUERADE && origin != FROM_NODE)
		return 0; // the node's own connections have an address of the node anyway
	d->front_id = f->id;
	d->pool = r->pool;
	p = find_pool(&d->pool);
	t->src = client_of(ctx);
	return p && p->backends && choose(d->pool, p, t, d);
}

// count_socket counts the open connections of a backend, and those of them that are
// sockets', so that the agent looks for these only if there are any when it is gone.
static __always_inline void count_socket(__u32 backend, __s64 n)
{
	struct state *s = state_of(backend);

	if (!s)
		return;
	if (n > 0 || count(s->active) > 0)
		__sync_fetch_and_add(&s->active, n);
	if (n > 0 || count(s->sockets) > 0)
		__sync_fetch_and_add(&s->sockets, n);
}

static __always_inline void forget(__u64 cookie)
{
	struct socket *s = recall(&sockets_2, &cookie);
	if (!s)
		return;
	count_socket(s->backend, -1);
	erase(&sockets_2, &cookie);
}

static __always_inline int same_frontend(const struct frontend_key *a, const struct frontend_key *b)
{
	return a->port == b->port && a->proto == b->proto && same_address(&a->addr, &b->addr);
}

// asks_directly is about a socket that speaks to an address that isn't a frontend's: what
// comes from there is no answer of the frontend that it asked before.
static __always_inline void asks_directly(__u64 cookie, const struct tuple *t)
{
	struct answer_key answer = {.cookie = cookie, .from = {.addr = t->dst, .port = t->dport}};

	if (t->proto == IPPROTO_UDP && recall(&answers_2, &answer))
		erase(&answers_2, &answer);
}

// connected decides about a socket that connects.
static __always_inline int connected(struct bpf_sock_addr *ctx, struct tuple *t, struct endpoint *to)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct decision d = {};
	struct frontend *f;
	struct socket s = {};

	forget(cookie); // it was connected before
	f = front_of(t, &d);
	if (!f)
		asks_directly(cookie, t);
	if (!f || !pick(ctx, f, t, &d))
		return 0;
	s.front = d.front;
	s.to = endpoint_of(&d.to);
	s.pool = d.pool;
	s.backend = d.to.id;
	if (put(&sockets_2, IN_SOCKETS, &cookie, &s, BPF_ANY)) {
		count_overflow();
		return 0;
	}
	count_connection(d.front_id);
	count_connection(d.to.id);
	count_socket(d.to.id, 1);
	*to = s.to;
	return 1;
}

// sends decides about a datagram from a socket that isn't connected.
static __always_inline int sends(struct bpf_sock_addr *ctx, struct tuple *t, struct endpoint *to)
{
	struct flow_key k = {};
	struct answer_key answer = {};
	struct decision d = {};
	struct frontend *f = front_of(t, &d);
	struct flow new = {}, *known;
	struct frontend_key *last;

	if (!f) {
		asks_directly(bpf_get_socket_cookie(ctx), t);
		return 0;
	}
	k.cookie = answer.cookie = bpf_get_socket_cookie(ctx);
	k.front = d.front;
	known = recall(&flows_2, &k);
	if (known && member_of(known->pool, &known->to)) {
		*to = known->to;
		answer.from = *to;
		last = recall(&answers_2, &answer); // the frontend that was asked last has it
		return (last && same_frontend(last, &k.front)) ||
		       !put(&answers_2, IN_ANSWERS, &answer, &k.front, BPF_ANY);
	}
	if (!pick(ctx, f, t, &d))
		return 0;
	new.pool = d.pool;
	new.to = answer.from = endpoint_of(&d.to);
	if (put(&answers_2, IN_ANSWERS, &answer, &k.front, BPF_ANY))
		return 0;
	put(&flows_2, IN_FLOWS, &k, &new, BPF_ANY);
	count_connection(d.front_id);
	count_connection(d.to.id);
	*to = new.to;
	return 1;
}

// is_connected reports whether a socket has a peer that it hears only of.
static __always_inline int is_connected(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *s = ctx->sk;

	return !s || s->state == BPF_TCP_ESTABLISHED; // UDP's state, too: net/ipv4/datagram.c
}

// translated finds the frontend that stands before a socket's peer. Every server asks
// for the peers of its connections and datagrams, so each is looked for in one place.
static __always_inline struct frontend_key *translated(struct bpf_sock_addr *ctx, const struct endpoint *peer)
{
	struct answer_key k = {.cookie = bpf_get_socket_cookie(ctx), .from = *peer};

	if (ctx->protocol == IPPROTO_TCP || is_connected(ctx)) {
		struct socket *s = recall(&sockets_2, &k.cookie);

		if (s && s->to.port == peer->port && same_address(&s->to.addr, &peer->addr))
			return &s->front;
		if (ctx->protocol == IPPROTO_TCP)
			return NULL;
	}
	return recall(&answers_2, &k);
}

static __always_inline struct tuple tuple4(struct bpf_sock_addr *ctx)
{
	return (struct tuple){.dst = mapped(ctx->user_ip4),
			      .dport = ctx->user_port, .proto = ctx->protocol};
}

static __always_inline struct address user_ip6(struct bpf_sock_addr *ctx)
{
	return (struct address){{ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]}};
}

static __always_inline struct tuple tuple6(struct bpf_sock_addr *ctx)
{
	return (struct tuple){.dst = user_ip6(ctx),
			      .dport = ctx->user_port, .proto = ctx->protocol};
}

static __always_inline void set4(struct bpf_sock_addr *ctx, const struct address *a, __be16 port)
{
	ctx->user_ip4 = a->word[3];
	ctx->user_port = port;
}

static __always_inline void set6(struct bpf_sock_addr *ctx, const struct address *a, __be16 port)
{
	ctx->user_ip6[0] = a->word[0];
	ctx->user_ip6[1] = a->word[1];
	ctx->user_ip6[2] = a->word[2];
	ctx->user_ip6[3] = a->word[3];
	ctx->user_port = port;
}

#define FAMILY(f, peer_address)                                            \
	SEC("cgroup/connect" #f)                                           \
	int connect##f(struct bpf_sock_addr *ctx)                          \
	{                                                                  \
		struct tuple t = tuple##f(ctx);                            \
		struct endpoint to;                                        \
		if (connected(ctx, &t, &to))                               \
			set##f(ctx, &to.addr, to.port);                    \
		return 1;                                                  \
	}                                                                  \
	SEC("cgroup/sendmsg" #f)                                           \
	int sendmsg##f(struct bpf_sock_addr *ctx)                          \
	{                                                                  \
		struct tuple t = tuple##f(ctx);                            \
		struct endpoint to;                                        \
		if (sends(ctx, &t, &to))                                   \
			set##f(ctx, &to.addr, to.port);                    \
		return 1;                                                  \
	}                                                                  \
	static __always_inline int restore##f(struct bpf_sock_addr *ctx)   \
	{                                                                  \
		struct endpoint peer = {.addr = peer_address, .port = ctx->user_port}; \
		struct frontend_key *front = translated(ctx, &peer);       \
		if (front)                                                 \
			set##f(ctx, &front->addr, front->port);            \
		return 1;                                                  \
	}                                                                  \
	SEC("cgroup/recvmsg" #f)                                           \
	int recvmsg##f(struct bpf_sock_addr *ctx) { return restore##f(ctx); } \
	SEC("cgroup/getpeername" #f)                                       \
	int getpeername##f(struct bpf_sock_addr *ctx) { return restore##f(ctx); }

FAMILY(4, mapped(ctx->user_ip4))
FAMILY(6, user_ip6(ctx))

SEC("cgroup/sock_release")
int release(struct bpf_sock *ctx)
{
	forget(bpf_get_socket_cookie(ctx));
	return 1;
}

char _license[] SEC("license") = "Apache-2.0";
