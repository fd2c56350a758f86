// Package nftables is the data plane that speaks netlink to nf_tables. One
// table, inet fairway, holds a constant number of chains and rules; everything
// about Services is in maps and sets, so that an endpoint change is a handful
// of set elements in one atomic transaction.
//
// How a new connection finds its backend (doc.go of the layout, as
// `nft list table inet fairway` shows it):
//
//	services     sources allowed? from a pod, this node, or outside?
//	route-*      address . protocol . port -> the pool's number (map from-*)
//	balance      the pool's number -> how to choose (map pools)
//	tcp4-random-3   number . random index below 3 -> backend (map slots4): dnat
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
// On the way out (translated) the frontend is looked up again by the
// connection's original destination, which tells whether to masquerade and
// whose client this is for session affinity.
//
// The kernel's assignment of pool numbers and slots is the only one: it is read
// back and adopted at start, and kept in memory from then on.
package nftables
