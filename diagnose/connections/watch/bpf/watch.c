// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// What passes the plane's programs, for whoever reads: programs of the reader's own before
// and behind them, which exist while somebody reads. The plane's know nothing of these.
// Fields of the kernel's structures are found by its own types (CO-RE).

#include "../../../../dataplane/ebpf/bpf/maps.h"
#include "../../../../dataplane/ebpf/packet/bpf/packet.h"

#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define KERNEL __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} KERNEL;

struct net {
	struct ns_common ns;
} KERNEL;

typedef struct {
	struct net *net;
} KERNEL possible_net_t;

struct sock_common {
	unsigned short skc_family;
	__u16 skc_num;
	__be32 skc_rcv_saddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
} KERNEL;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	int sk_err;
} KERNEL;

struct tcp_sock {
	__u64 bytes_received, bytes_acked;
} KERNEL;

// The port of either end that is asked for, in network byte order: each packet that has
// it is told of. 0 stands for packets that may begin a connection to a Service.
volatile const __u16 port;

enum what {
	ENTERS = 1, // a packet, before the plane's programs
	LEAVES,     // behind them
	CONNECTS,   // a datagram socket is connected to a frontend
	SENDS,      // an unconnected one begins to send to one
	ESTABLISHED,
	FAILED, // before it was established
	CLOSED,
};

// struct seen is what is told.
struct seen {
	__u64 id;      // of a socket
	__u64 in, out; // bytes
	struct tuple packet;
	struct endpoint backend;
	__u32 pid, netns, ifindex;
	__u8 what, error, flags, own;
};

const struct seen *unused __attribute__((unused)); // bpf2go takes types that somebody names
const struct conn *unused_conn __attribute__((unused));
const enum hook *unused_hook __attribute__((unused));
const enum kind *unused_kind __attribute__((unused));
const enum step *unused_step __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} told SEC(".maps");

// How many didn't fit.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline struct seen *reserve(enum what what)
{
	struct seen *e = bpf_ringbuf_reserve(&told, sizeof(*e), 0);
	__u32 only = 0;
	__u64 *n;

	if (e) {
		__builtin_memset(e, 0, sizeof(*e));
		e->what = what;
		return e;
	}
	n = bpf_map_lookup_elem(&lost, &only);
	if (n)
		(*n)++;
	return NULL;
}

// headers reads a packet's addresses and ports; fragments but the first have none.
static __always_inline int headers(struct __sk_buff *skb, struct tuple *t, __u8 *flags)
{
	__u8 first[14] __attribute__((aligned(8))) = {};
	union ip_header h;
	__u32 next;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes_relative(skb, 0, &h.v4, sizeof(h.v4), BPF_HDR_START_NET) || h.v4.frag_off & bpf_htons(0x1fff))
			return 0;
		t->src = mapped(h.v4.saddr);
		t->dst = mapped(h.v4.daddr);
		t->proto = h.v4.protocol;
		next = h.v4.ihl * 4;
	} else {
		if (skb->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes_relative(skb, 0, &h.v6, sizeof(h.v6), BPF_HDR_START_NET))
			return 0;
		__builtin_memcpy(&t->src, &h.v6.saddr, 16);
		__builtin_memcpy(&t->dst, &h.v6.daddr, 16);
		t->proto = h.v6.nexthdr;
		next = sizeof(h.v6);
	}
	if (t->proto != IPPROTO_TCP && t->proto != IPPROTO_UDP && t->proto != IPPROTO_SCTP)
		return 0;
	if (bpf_skb_load_bytes_relative(skb, next, first, t->proto == IPPROTO_UDP ? 8 : 14, BPF_HDR_START_NET))
		return 0;
	t->sport = *(__be16 *)first;
	t->dport = *(__be16 *)(first + 2);
	*flags = t->proto == IPPROTO_UDP ? 0 : t->proto == IPPROTO_TCP ? first[13] : first[12];
	return 1;
}

// Datagrams that were told of lately: each would be, otherwise.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct tuple);
	__type(value, __u64); // when it was seen last: ktime, ns
} datagrams SEC(".maps");

#define SILENCE 30000000000 // ns after which a flow of datagrams counts as another

static __always_inline int goes_on(const struct tuple *t)
{
	__u64 now = bpf_ktime_get_ns(), *seen = bpf_map_lookup_elem(&datagrams, t);

	if (seen && now - *seen < SILENCE) {
		*seen = now;
		return 1;
	}
	bpf_map_update_elem(&datagrams, t, &now, BPF_ANY);
	return 0;
}

// may_begin reports whether a packet may begin a connection to a Service.
static __always_inline int may_begin(const struct tuple *t, __u8 flags)
{
	struct frontend_key k = {.addr = t->dst, .port = t->dport, .proto = t->proto};

	if (t->proto == IPPROTO_TCP && (flags & 0x12) != 0x02) // SYN without ACK
		return 0;
	if (t->proto == IPPROTO_SCTP && flags != 1) // INIT
		return 0;
	if (!find(&frontends, &k) && !reserved(&t->dst))
		return 0;
	return t->proto != IPPROTO_UDP || !goes_on(t);
}

static __always_inline void tell(struct __sk_buff *skb, enum what what, enum hook hook)
{
	struct tuple t = {};
	struct seen *e;
	__u8 flags = 0;

	if (!headers(skb, &t, &flags))
		return;
	t.hook = hook;
	if (port ? t.sport != port && t.dport != port : !may_begin(&t, flags))
		return;
	e = reserve(what);
	if (!e)
		return;
	e->packet = t;
	e->ifindex = skb->ifindex;
	e->flags = flags;
	e->own = !skb->ingress_ifindex;
	bpf_ringbuf_submit(e, 0);
}

SEC("tc")
int enters(struct __sk_buff *skb)
{
	tell(skb, ENTERS, AT_INGRESS);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int entered(struct __sk_buff *skb)
{
	tell(skb, LEAVES, AT_INGRESS);
	return TC_ACT_UNSPEC;
}

// What leaves and has come in before was told of then, unless each packet is asked for.
SEC("tc")
int departs(struct __sk_buff *skb)
{
	if (port || !skb->ingress_ifindex)
		tell(skb, ENTERS, AT_EGRESS);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int departed(struct __sk_buff *skb)
{
	tell(skb, LEAVES, AT_EGRESS);
	return TC_ACT_UNSPEC;
}

// What the programs of sock/bpf/sock.c remember of sockets, as it is there.
struct socket {
	struct frontend_key front;
	struct endpoint to;
	__u32 pool;
	__u32 backend;
};

struct answer_key {
	__u64 cookie;
	struct endpoint from;
	__u32 pad;
};

GROWING(sockets_2, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, __u64, struct socket, 1 << 14);
GROWING(answers_2, BPF_MAP_TYPE_LRU_HASH, 0, struct answer_key, struct frontend_key, 1 << 13);

// struct under_way is a socket that was given a backend.
struct under_way {
	struct frontend_key front;
	struct endpoint backend;
	__be16 port; // the socket's own, which it has forgotten at its end
	__u16 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, __u64); // the socket's cookie
	__type(value, struct under_way);
} balanced SEC(".maps");

static __always_inline struct tuple tuple_of(const struct under_way *u, __u8 proto)
{
	return (struct tuple){.dst = u->front.addr, .dport = u->front.port, .proto = proto};
}

static __always_inline void tell_state(enum what what, struct sock *sk, __u64 cookie, const struct under_way *u)
{
	struct tuple t = tuple_of(u, IPPROTO_TCP);
	struct seen *e;

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == 2) // AF_INET
		t.src = mapped(BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
	else
		BPF_CORE_READ_INTO(&t.src, sk, __sk_common.skc_v6_rcv_saddr);
	t.sport = u->port;
	if (port && t.sport != port)
		return;
	e = reserve(what);
	if (!e)
		return;
	e->packet = t;
	e->backend = u->backend;
	e->id = cookie;
	e->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	e->error = BPF_CORE_READ(sk, sk_err);
	if (what == CLOSED) {
		e->in = BPF_CORE_READ((struct tcp_sock *)sk, bytes_acked);
		e->out = BPF_CORE_READ((struct tcp_sock *)sk, bytes_received);
	}
	bpf_ringbuf_submit(e, 0);
}

// TCP's states (net/tcp_states.h).
enum { IS_ESTABLISHED = 1, SYN_SENT = 2, IS_CLOSED = 7 };

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state, struct sock *sk, int before, int now)
{
	struct under_way *u, new = {};
	struct socket *s;
	__u64 cookie;

	if (now != IS_CLOSED && before != SYN_SENT)
		return 0;
	cookie = bpf_get_socket_cookie(sk);
	u = bpf_map_lookup_elem(&balanced, &cookie);
	if (before == SYN_SENT) {
		s = recall(&sockets_2, &cookie);
		if (s) {
			new.front = s->front;
			new.backend = s->to;
			new.port = bpf_htons(BPF_CORE_READ(sk, __sk_common.skc_num));
			bpf_map_update_elem(&balanced, &cookie, &new, BPF_ANY);
			u = &new;
		}
	}
	if (!u)
		return 0;
	new = *u;
	if (now != IS_CLOSED) {
		tell_state(ESTABLISHED, sk, cookie, &new);
		return 0;
	}
	tell_state(before == SYN_SENT ? FAILED : CLOSED, sk, cookie, &new);
	bpf_map_delete_elem(&balanced, &cookie);
	return 0;
}

// Datagram sockets: behind the plane's program, which has put the backend in.
static __always_inline void tell_datagrams(struct bpf_sock_addr *addr, enum what what, struct endpoint *to)
{
	__u64 cookie = bpf_get_socket_cookie(addr);
	struct answer_key k = {.cookie = cookie, .from = *to};
	struct under_way u = {.backend = *to}, *before;
	struct frontend_key *front;
	struct socket *s;
	struct seen *e;

	if (addr->protocol != IPPROTO_UDP)
		return;
	if (what == CONNECTS) {
		s = recall(&sockets_2, &cookie);
		front = s && s->to.port == to->port && same_address(&s->to.addr, &to->addr) ? &s->front : NULL;
	} else {
		front = recall(&answers_2, &k);
	}
	if (!front)
		return;
	u.front = *front;
	before = bpf_map_lookup_elem(&balanced, &cookie);
	if (what == SENDS && before && before->backend.port == to->port && same_address(&before->backend.addr, &to->addr))
		return; // it goes on
	bpf_map_update_elem(&balanced, &cookie, &u, BPF_ANY);
	e = reserve(what);
	if (!e)
		return;
	e->packet = tuple_of(&u, IPPROTO_UDP);
	e->packet.sport = addr->sk ? bpf_htons(addr->sk->src_port) : 0;
	e->backend = *to;
	e->id = cookie;
	e->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_ringbuf_submit(e, 0);
}

#define DATAGRAMS4(name, what)                                                                                                 \
	SEC("cgroup/" #name "4")                                                                                               \
	int name##4(struct bpf_sock_addr * addr)                                                                               \
	{                                                                                                                      \
		struct endpoint to = {.addr = mapped(addr->user_ip4), .port = addr->user_port};                                \
		tell_datagrams(addr, what, &to);                                                                               \
		return 1;                                                                                                      \
	}

#define DATAGRAMS6(name, what)                                                                                                 \
	SEC("cgroup/" #name "6")                                                                                               \
	int name##6(struct bpf_sock_addr * addr)                                                                               \
	{                                                                                                                      \
		struct endpoint to = {                                                                                         \
			.addr = {{addr->user_ip6[0], addr->user_ip6[1], addr->user_ip6[2], addr->user_ip6[3]}},                \
			.port = addr->user_port,                                                                               \
		};                                                                                                             \
		tell_datagrams(addr, what, &to);                                                                               \
		return 1;                                                                                                      \
	}

DATAGRAMS4(connect, CONNECTS)
DATAGRAMS6(connect, CONNECTS)
DATAGRAMS4(sendmsg, SENDS)
DATAGRAMS6(sendmsg, SENDS)

// The tracepoint reads structures of the kernel.
char _license[] SEC("license") = "Dual BSD/GPL";
