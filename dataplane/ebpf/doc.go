// Package ebpf is the data plane without netfilter: sockets of the node and its
// pods get their backend when they connect, and packets of others are
// translated at the node's interfaces.
//
// # The programs
//
// There are two objects, made from bpf/sock.c and bpf/tc.c, that share pinned
// maps (bpf/maps.h) and what they do with them (bpf/decide.h, bpf/choose.h):
//
//   - sock: cgroup programs on connect, sendmsg, recvmsg, getpeername and on a
//     socket's release. They act on what they can do as the model says; all
//     else goes on to the packet path.
//   - tc: programs at the interfaces.
//
// Both are compiled by bpf2go and committed; `go generate` makes them anew,
// byte for byte with the same clang (Debian 12's, version 14).
//
// # The maps
//
// frontends (address, port, protocol) say which pool connections of each origin
// go to; pools say how many slots there are and how one is chosen; slots hold
// backends; members find a backend by its address, for what remembers it. Each
// of them is the one inner map of an outer one, so that a larger one can take
// its place. The prefixes of Services' addresses are in a trie, and, if they are
// few, once more in ranges, which costs less to look into. One endpoint more or
// less is a member, a slot, or two, and the pool's counts.
//
// Maps that the programs fill (connections, sockets, clients with affinity, UDP
// flows) have two places in their outer map: for the one that is put into, and, when
// it was half full and has got a larger one before it, for the earlier one until its
// elements have moved (room.go). So an agent that runs keeps room for as much again
// as there is.
//
// # Sockets
//
// The programs remember what a connected socket was led to, and count the sockets of
// each backend. When a backend is gone that has any, the agent reads what they
// remember (sweep.go), finds the socket in the process that has it (holders.go) and
// connects it anew, or, if it may not, has the kernel destroy it (destroy.go). It
// does so for all sockets after a start and with every comparison, so that a change
// which nobody saw is made up for.
//
// # Packets
//
// Programs at both ends of every interface, found and followed by netlink (tcx
// where the kernel has it, clsact before 6.6), keep one rule: between the two
// hooks a connection is the client talking to the backend, whatever it is
// outside. A packet is translated to that as it comes in and from that as it
// leaves (the picture is in bpf/conn.h):
//
//   - ingress: the frontend becomes the backend; in answers to masqueraded
//     connections the node becomes the client again.
//   - egress: the client becomes the node, if the connection is masqueraded; in
//     answers the backend becomes the frontend.
//
// So the kernel's routing, its reverse-path filter, its own ICMP errors and
// netfilter's connection tracking see ordinary packets of one flow in both
// directions; nothing is INVALID or martian, and firewalls see real addresses.
// ICMP errors, those about path MTU among them, are translated at the same hooks
// by the packet that they quote. Only refusals (sent back to where they came
// from) and what sockets of the node itself send to a frontend past the socket
// path (SCTP; frontends with source ranges) go other ways than the kernel's: the
// latter is sent on from the egress hook, and its answers come home over the
// loopback.
//
// The connection table is plain entries that expire by the agent's hand
// (conns.go): while no agent runs, connections go on and new ones begin until the
// table is full. It outlives agents; its name has the version of its layout. When
// the plane takes another's place, the connections that netfilter translates stay
// with it until they end; for so long there is a table of nf_tables, fairway-ebpf,
// that has it go on (takeover.go). From IPVS, sockets aren't taken before it has gone
// (standby.go). The other way round, netfilter gets the connections (handover.go).
//
// With direct server return (bpf/direct.h, model.Route.Direct) the two directions of
// a connection go by different nodes: this one sends the client's packets on to
// the backend's node, and says in an option of the IP header which frontend they
// are for; that one translates the answers. Each has entries for both directions,
// and sees one or both of them.
//
// What the packet path has no entries of are connections past all frontends. A
// client may use one port both for a frontend and, at the same time, for a direct
// connection to the backend that it was given there. If the former is masqueraded,
// its packets are known inside the node by a mark (TRANSLATED in bpf/conn.h); if
// not, the answers to the latter are taken for the former's.
package ebpf
