// Package iptables is the plane of rules for iptables, both variants, in the
// form that operators know from kube-proxy: KUBE-SERVICES leads to a chain for
// each Service port (KUBE-SVC-…), and that to one for each backend (KUBE-SEP-…).
//
// Unlike there, KUBE-SERVICES isn't a list of all Services. It leads to small
// chains by ever longer prefixes of the destination (see [tree]), so that what
// belongs to no Service passes a handful of rules, and what does passes a
// number that grows with the logarithm of the number of Services. A change
// rewrites the chains it concerns, and nothing is read back in steady state.
//
// The nft variant has a cost that this package can't avoid: at every commit the
// kernel walks through all rules that packets can reach (nft_table_validate), 0.3 s at 10,000
// Services with five endpoints each.
//
// Session affinity (xt_recent) remembers the last 100 clients of an endpoint,
// unless the module is told otherwise, see [rememberedClients].
package iptables
