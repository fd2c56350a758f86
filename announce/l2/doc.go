// Package l2 announces addresses on the links of this node: what announce/core decides is carried
// out here.
//
//	announcer.go  all links of the node
//	link.go       one link, from its sockets to its end
//	effects.go    what was decided is done
//	frames.go     what comes in, and what is answered
//	kept.go       connections of addresses that were given up
//	question.go   questions to the kernels of nodes that are silent
//	answers.go    what this node's kernel answers without an agent
//	kernelarp.go  what it must not answer by itself
//	arp.go, ndp.go, sockets.go, counts.go
//
// The programs are in responder and announce/steering.
package l2
