// Package steering leads packets of connections to the node that has them, in any mode of the data
// plane. When an address moves on purpose, its new owner leads them to the former one. When a node
// is about to begin or to cease telling routers of addresses, routers choose anew among nodes, and
// packets come in at nodes that don't know their connection: strays. Nodes on one link tell each
// other whose connections they have, and lead strays from one to the next until a node has the
// connection. A handoff is a ring of one node. Nothing is led before a node asks for it. Its files:
//
//	interfaces.go  interfaces, and the one program there is at each
//	program.go     what is led at an interface, and why
//	flow.go        connections, as the program knows them
//	steerer.go     the links to routers, and the question before a planned change
//	uplink.go      one of them: its socket, and what is led there
//	count.go       connections that are to go on
//	group.go       what the nodes of such a link said (pure)
//	message.go     what they say
//	watch.go       nodes that connections are led to, and that are lost
//	bpf/           the program
//
// The program stays when the process ends, as long as it has something to lead; the next process
// goes on with it.
package steering
