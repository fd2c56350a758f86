// SPDX-License-Identifier: Apache-2.0
//
// Lets tests ask decide (BPF_PROG_TEST_RUN): the packet is the question, and
// the answer is written over it.

#include "decide.h"

struct question {
	struct tuple t;
	__u32 origin;
};

struct reply {
	__u32 action, reason, masquerade, direct, pool, backend;
	struct endpoint to;
};

SEC("tc")
int ask(struct __sk_buff *skb)
{
	struct question q;
	struct reply r = {};
	struct decision d = {};
	struct frontend *f;

	if (bpf_skb_load_bytes(skb, 0, &q, sizeof(q)))
		return -1;
	f = front_of(&q.t, &d);
	r.action = f ? decide(f, &q.t, q.origin, &d) : decide_unknown(&q.t.dst, &d);
	r.reason = d.reason;
	r.masquerade = d.masquerade;
	r.direct = d.direct;
	r.pool = d.pool;
	if (d.action == FORWARD) {
		opened(d.to.id);
		r.backend = d.to.id;
		r.to = endpoint_of(&d.to);
	}
	return bpf_skb_store_bytes(skb, 0, &r, sizeof(r), 0) ? -1 : 0;
}

struct asked {
	__u32 found;
	struct endpoint to;
};

SEC("tc")
int again(struct __sk_buff *skb)
{
	struct question q;
	struct asked r[2] = {};
	struct decision d = {};
	struct frontend *f;

	if (bpf_skb_load_bytes(skb, 0, &q, sizeof(q)))
		return -1;
	f = front_of(&q.t, &d);
	if (f && q.t.proto == IPPROTO_TCP && resume(f, &q.t, q.origin, FIRST, &d) == FORWARD) {
		r[0].found = 1;
		r[0].to = endpoint_of(&d.to);
	}
	if (f && q.t.proto == IPPROTO_TCP && resume(f, &q.t, q.origin, SECOND, &d) == FORWARD) {
		r[1].found = 1;
		r[1].to = endpoint_of(&d.to);
	}
	return bpf_skb_store_bytes(skb, 0, r, sizeof(r), 0) ? -1 : 0;
}

SEC("tc")
int done(struct __sk_buff *skb)
{
	__u32 backend;

	if (bpf_skb_load_bytes(skb, 0, &backend, sizeof(backend)))
		return -1;
	released(backend);
	return 0;
}

char _license[] SEC("license") = "Apache-2.0";
