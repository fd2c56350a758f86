/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

#pragma once

#include <linux/bpf.h>

// is_tagged reports whether a frame is of a VLAN. One with a priority only (802.1p, VLAN 0) is the
// interface's own.
static __always_inline int is_tagged(struct __sk_buff *skb)
{
	return skb->vlan_present && (skb->vlan_tci & 0xfff);
}
