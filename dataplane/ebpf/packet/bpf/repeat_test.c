// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Lets a benchmark give the programs the same packet many times
// (BPF_PROG_TEST_RUN), or each time another client's: the kernel hands on what the run
// before has left.

#include "tc.c"

struct template {
	__u8 bytes[96];
	__u32 size;
	__u32 port; // where the source port is, if each packet is to be another client's
};

volatile struct template template;
__u32 client;

// restore makes the packet what it was, or the next client's.
static __always_inline int restore(struct __sk_buff *skb)
{
	__u8 bytes[sizeof(template.bytes)];
	__u32 size = template.size, at = template.port;

	skb->tc_index = 0;
	barrier_var(size);
	if (size < 1 || size > sizeof(bytes))
		return -1;
	__builtin_memcpy(bytes, (const void *)template.bytes, sizeof(bytes));
	if (bpf_skb_store_bytes(skb, 0, bytes, size, 0))
		return -1;
	if (!at)
		return 0;
	client++;
	return bpf_skb_store_bytes(skb, at, &client, 2, 0);
}

SEC("tc")
int nothing(struct __sk_buff *skb) { return restore(skb); }

SEC("tc")
int comes(struct __sk_buff *skb) { return restore(skb) ? TC_ACT_SHOT : handle(skb, ETH_HLEN, AT_INGRESS); }

// passes is both programs, as for a packet that is forwarded.
SEC("tc")
int passes(struct __sk_buff *skb)
{
	int verdict = restore(skb) ? TC_ACT_SHOT : handle(skb, ETH_HLEN, AT_INGRESS);

	return verdict == TC_ACT_UNSPEC ? handle(skb, ETH_HLEN, AT_EGRESS) : verdict;
}

static __always_inline int restore_frame(struct xdp_md *ctx)
{
	__u32 size = template.size;

	barrier_var(size);
	if (size < 1 || size > sizeof(template.bytes))
		return -1;
	return bpf_xdp_store_bytes(ctx, 0, (void *)template.bytes, size);
}

SEC("xdp.frags")
int no_driver(struct xdp_md *ctx) { return restore_frame(ctx); }

SEC("xdp.frags")
int drives(struct xdp_md *ctx) { return restore_frame(ctx) ? XDP_ABORTED : in_driver(ctx); }
