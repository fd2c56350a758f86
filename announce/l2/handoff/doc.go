// Package handoff leads packets of connections that didn't begin at this node to the
// former owner of their address, which goes on with them, in any mode of the data plane: a
// planned move of an address ends no connection. It knows nothing of elections: it is told
// who the former owner is, and until when. Its files:
//
//	handoff.go  a link's program and its maps, on the base of announce/lead
//	attach.go   where the program hangs: before the data plane
//	bpf/        the program
//
// The program stays when the process ends, as long as it has something to lead; the next
// process goes on with it.
package handoff
