// Package nftables is the data plane that speaks netlink to nf_tables. One
// table, inet fairway, holds a constant number of chains and rules; everything
// about Services is in maps and sets, so that an endpoint change is a handful
// of set elements in one atomic transaction.
//
// How a new connection finds its backend, in the names that
// `nft list table inet fairway` shows:
//
//	services            sources allowed? from a pod, this node, or outside?
//	route-pod           address . protocol . port: the pool's number (map from-pod4)
//	balance-pod         the pool's number: how it chooses (maps pools, choosers-pod)
//	tcp4-random-3-pod   number . random index below 3: the backend (map slots4); dnat
//
// Pools of one size share their chains, of which there are as many as sizes.
// With session affinity, tcp4-sticky-pod comes before the last step: it asks
// clients4 for the backend that the client had, as a hash that members4 turns
// into an address as long as it is a backend; the learn chains write it there
// after translation, for the hash is made of the pool and the address.
//
// Frontends without backends end in refuse or discard, as do unserved Service
// addresses. On its way out (leaving, or arriving at a process of this node) a
// translated connection's frontend is looked up again by the destination it began
// with. One element of connections4 counts it and says whether to masquerade; only
// where routes differ or clients are remembered is the route itself recalled.
// Packets that conntrack calls INVALID come to invalid before anything else.
//
// Between these steps the pool's number travels in the packet's priority
// (skb->priority): the only 32 bits that a rule can both write and use in a
// key and that mean nothing yet at these hooks. IPv4 forwarding overwrites them
// anyway (ip_forward_update_priority), translated packets get 0 back on their
// way out, and only a connection's first packet comes here at all. Packet and
// connection marks stay with those who use them.
//
// Every rule has a form in nft's own language, and none uses a map's result as
// part of another map's key: nf_tables can do that, but nft 1.0.6 aborts when
// it lists such a rule.
//
// Verdict maps are kept small: see newChooserSets.
//
// The kernel's assignment of pool numbers and slots is the only one: it is read
// back and adopted at start, and kept in memory from then on.
package nftables
