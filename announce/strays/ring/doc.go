// Package ring leads packets of connections that didn't begin at this node from node to
// node, until one of them has the connection, in any mode of the data plane. It is told
// which nodes have connections of an address, and in which order they are asked. Its files:
//
//	ring.go    an interface's program and its maps, on the base of announce/lead
//	place.go   where the program hangs: before the data plane
//	bpf/       the program
//
// The program stays when the process ends, as long as an address has a ring; the next
// process goes on with it.
package ring
