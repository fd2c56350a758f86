// Package strays keeps connections alive when a node is about to begin or to cease telling
// routers of addresses: routers then choose anew among nodes, and packets come in at nodes
// that don't know their connection. Nodes on one link tell each other whose connections they
// have, and lead strays from one to the next until a node has the connection, in any mode of
// the data plane. Nothing runs on a node without routers, and nothing is led before a node
// asks for it. Its files:
//
//	strays.go   the links to routers, and the question before a planned change
//	link.go     one link: its socket, and what is led there
//	count.go    connections that are to go on
//	group.go    what the nodes of a link said (pure)
//	message.go  what they say
//	watch.go    nodes that connections are led to, and that are lost
//	ring/       the program that leads packets
package strays
