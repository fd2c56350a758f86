// Package core decides which node of a link announces which address, and when. It is pure: an
// event and the time go in, effects come out. There is no clock, socket, lock or kernel in it, and
// the same events have the same effects. announce/l2 carries them out on an interface;
// test/simulate runs whole links of it.
//
// Nodes agree by adverts. Each address has one owner on a link, which answers ARP and NDP for it.
// docs/explanation/announcing.md has the states of an address, and every time with its reason.
//
//	announcer.go  events; what is due
//	effects.go    what is to be done
//	claims.go     the addresses that the node owns: asked for, told, given up
//	ahead.go      asked for before the data plane has them
//	conflicts.go  addresses that a machine has that is none of the cluster's
//	handoffs.go   connections that go on at the former owner
//	questions.go  nodes are asked although they aren't silent
//
// The election is on its own in these:
//
//	election.go   who owns what
//	member.go     what another node said
//	judge.go      claiming and giving up
//	say.go        adverts taken in and sent
//	missed.go     adverts that were lost on the way
//	keepers.go    who goes on with connections of before
//	overdue.go    nodes that are silent
//	hearing.go    nodes that are heard and don't hear
//	advert.go     adverts as bytes
package core
