// Package userspace forwards Service traffic in a process, as the first
// kube-proxy did: for kernels and sandboxes where nothing else works. It needs
// no netfilter, no eBPF and no module: only routes and sockets.
//
// Routes make Service addresses local to the node (one for each reserved range,
// one for each other address that frontends have), so that their packets reach
// listeners bound to them, and those that nothing serves are refused by the
// kernel itself. A relay accepts connections, chooses a backend and copies: TCP
// by splice(2), UDP with a socket for each client.
//
// The relay is a process of its own, the same binary started again, since what
// the kernel is to other planes it is to this one: it holds listeners and
// connections while the agent comes and goes. An agent that finds a relay of
// the same build goes on with it; one that finds another build's starts its
// own, which is handed the listeners (SCM_RIGHTS), while the old relay serves
// the connections that it has until they end. Only if the relay itself is
// killed, its connections are lost: they live nowhere else.
//
// Pods of this node see their clients' addresses where the table wants it, if
// the kernel has nf_tables with nft_socket and policy routing: connections to
// them are made from the client's address (IP_TRANSPARENT), and three constant
// things lead the answers back to the relay (see transparent.go).
//
// What it cannot do, and says in Unsupported: show the client's address to backends
// on other nodes, whose answers to it would not come by here, nor to any
// backend where the kernel lacks the above; drop silently a TCP connection that
// should get no answer, as the kernel has accepted it before anybody can
// judge it; SCTP. Host services that listen on all addresses answer at
// Service addresses too, on ports that no Service uses.
package userspace
