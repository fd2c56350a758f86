// Package responder answers ARP requests and neighbor solicitations in the kernel,
// for the addresses that this node owns on a link, while no agent runs
// too. It takes no part in elections: it is told what is owned. Its files:
//
//	responder.go  a link's program and its maps
//	filter.go     where the program hangs: before the programs of others, where the kernel has tcx
//	bpf/          the program
//
// Nothing is pinned. The interface keeps the program, the program keeps the maps, and
// the next agent finds all of them by the interface.
package responder
