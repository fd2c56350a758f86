// Package l2 announces addresses on the links of this node. Each address has
// one owner on a link; the nodes of the link agree on it by adverts. The owner
// answers ARP and NDP for the address.
//
//	announcer.go  all links of the node
//	link.go       one link, from its sockets to its end
//	conflicts.go  addresses that a machine has that is none of the cluster's
//	claims.go     the addresses that the node owns: asked for, told, given up
//	ahead.go      asked for before the data plane has them
//	frames.go     what comes in, and what is answered
//	election.go   who owns what (pure, with the next seven)
//	member.go     what another node said
//	judge.go      claiming and giving up
//	say.go        adverts taken in and sent
//	missed.go     adverts that were lost on the way
//	keepers.go    who goes on with connections of before
//	overdue.go    nodes that are silent
//	hearing.go    nodes that are heard and don't hear
//	advert.go     adverts as bytes
//	handoff.go    connections led to the former owner
//	question.go   questions to the kernels of nodes that are silent
//	answers.go    what this node's kernel answers without an agent
//	kernelarp.go  what it must not answer by itself
//	arp.go, ndp.go, sockets.go, counts.go
//
// The programs are in responder and handoff.
package l2
