// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Packets that the kernel drops, with its reason, by the tracepoint skb:kfree_skb. Fields
// of the kernel's structures are found by its own types (CO-RE): only those are named here
// that are read.

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
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

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNEL;

struct sock_common {
	possible_net_t skc_net;
} KERNEL;

struct sock {
	struct sock_common __sk_common;
} KERNEL;

struct dst_entry {
	struct net_device *dev;
} KERNEL;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned long _skb_refdst;
	unsigned long _nfct;
	__u16 network_header;
	__u16 transport_header;
	unsigned char *head;
} KERNEL;

union nf_inet_addr {
	__u32 all[4];
} KERNEL;

union nf_conntrack_man_proto {
	__be16 all;
} KERNEL;

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} KERNEL;

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
	} dst;
} KERNEL;

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} KERNEL;

struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
} KERNEL;

// What the agent asks for.
volatile const __u32 netns;  // the inode of the network namespace; 0 for all
volatile const __u16 port;   // of either end, in network byte order; 0 for all
volatile const __u8 answers; // also packets that begin no connection

// struct drop is what is told of a packet.
struct drop {
	__u64 location; // in the kernel
	__u32 reason;   // enum skb_drop_reason
	__u32 ifindex;
	__u8 src[16], dst[16];         // as the packet was dropped
	__u8 client[16], frontend[16]; // as conntrack first saw its connection
	__be16 sport, dport, client_port, frontend_port;
	__u8 proto, v6, flags, tracked;
};

const struct drop *unused __attribute__((unused)); // bpf2go takes types that somebody names

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} told SEC(".maps");

// How many didn't fit.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline struct net_device *device_of(struct sk_buff *skb)
{
	struct net_device *dev = BPF_CORE_READ(skb, dev);
	unsigned long dst = BPF_CORE_READ(skb, _skb_refdst) & ~1UL;

	if (dev || !dst)
		return dev;
	return BPF_CORE_READ((struct dst_entry *)dst, dev);
}

static __always_inline __u32 netns_of(struct sk_buff *skb, struct net_device *dev)
{
	struct sock *sk = BPF_CORE_READ(skb, sk);

	if (sk)
		return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	return dev ? BPF_CORE_READ(dev, nd_net.net, ns.inum) : 0;
}

// addresses reads the IP header, and returns where the next one is; 0 if it is none.
static __always_inline __u32 addresses(unsigned char *ip, struct drop *d)
{
	__u8 h[40];

	if (bpf_probe_read_kernel(h, 20, ip))
		return 0;
	if (h[0] >> 4 == 4) {
		__builtin_memcpy(d->src, h + 12, 4);
		__builtin_memcpy(d->dst, h + 16, 4);
		d->proto = h[9];
		return (h[0] & 15) * 4;
	}
	if (h[0] >> 4 != 6 || bpf_probe_read_kernel(h, 40, ip))
		return 0;
	__builtin_memcpy(d->src, h + 8, 16);
	__builtin_memcpy(d->dst, h + 24, 16);
	d->proto = h[6];
	d->v6 = 1;
	return 40;
}

static __always_inline void connection(struct sk_buff *skb, struct drop *d)
{
	struct nf_conn *ct;

	if (!bpf_core_field_exists(skb->_nfct) || !bpf_core_type_exists(struct nf_conn))
		return;
	ct = (struct nf_conn *)(BPF_CORE_READ(skb, _nfct) & ~7UL);
	if (!ct)
		return;
	BPF_CORE_READ_INTO(&d->client, ct, tuplehash[0].tuple.src.u3.all);
	BPF_CORE_READ_INTO(&d->frontend, ct, tuplehash[0].tuple.dst.u3.all);
	d->client_port = BPF_CORE_READ(ct, tuplehash[0].tuple.src.u.all);
	d->frontend_port = BPF_CORE_READ(ct, tuplehash[0].tuple.dst.u.all);
	d->tracked = 1;
}

static __always_inline int is_wanted(const struct drop *d)
{
	if (port && d->sport != port && d->dport != port && d->client_port != port)
		return 0;
	return answers || d->proto != IPPROTO_TCP || (d->flags & 0x12) == 0x02; // SYN without ACK
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(dropped, struct sk_buff *skb, void *location, unsigned int reason)
{
	struct drop d = {.location = (__u64)location, .reason = reason}, *out;
	struct net_device *dev = device_of(skb);
	unsigned char *ip = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	__u8 h[14] __attribute__((aligned(8)));
	__u32 next, only = 0;
	__u64 *n;

	if (reason <= 1 || (netns && netns_of(skb, dev) != netns)) // not dropped, or taken in
		return 0;
	next = addresses(ip, &d);
	if (!next || (d.proto != IPPROTO_TCP && d.proto != IPPROTO_UDP && d.proto != IPPROTO_SCTP))
		return 0;
	if (bpf_probe_read_kernel(h, d.proto == IPPROTO_TCP ? 14 : 8, ip + next))
		return 0;
	d.sport = *(__be16 *)h;
	d.dport = *(__be16 *)(h + 2);
	d.flags = d.proto == IPPROTO_TCP ? h[13] : 0;
	d.ifindex = dev ? BPF_CORE_READ(dev, ifindex) : 0;
	connection(skb, &d);
	if (!is_wanted(&d))
		return 0;
	out = bpf_ringbuf_reserve(&told, sizeof(*out), 0);
	if (!out) {
		n = bpf_map_lookup_elem(&lost, &only);
		if (n)
			(*n)++;
		return 0;
	}
	*out = d;
	bpf_ringbuf_submit(out, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
