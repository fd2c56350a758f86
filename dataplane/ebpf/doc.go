// Package ebpf is the data plane without netfilter. Sockets of the node and its pods get
// their backend when they connect; packets of others are translated at the node's
// interfaces.
//
// # Where things are
//
//	plane.go, apply.go   the plane: what happens in which order
//	remove.go            how it goes
//	readback.go          what the kernel holds, and what was counted
//	render.go, check.go  what the kernel should hold, and does
//	connections.go       how connections come and go with the mode
//	unsupported.go       what it doesn't do here
//	probe.go             what the programs need of a kernel
//	bypass.go            cluster DNS that the node answers by itself
//	pins/                the directory below /sys/fs/bpf with everything that outlives the agent
//	program/             which elements the maps should hold for a table; no kernel
//	maps/                the maps: opened, written, enlarged, read
//	sock/                the socket path: programs at the node's cgroup
//	packet/              the packet path: programs at the interfaces, the connection table
//	bpf/                 C that both paths share: types.h, maps.h, choose.h, decide.h
//
// The C of a path is in its bpf folder. bpf2go compiles it, and the result is committed;
// `make generate` makes the same bytes with Debian 12's clang 14.
//
// # Maps
//
// A frontend (address, port, protocol) leads to a pool for each origin. A pool says how
// many slots it has and how one is chosen. A slot holds a backend. Members find a backend
// by its address. One endpoint more or less is a member, one or two slots, and the pool.
//
// Each map of the table is the one inner map of an outer one, so a larger one can take its
// place. The maps that programs fill (connections, sockets, clients, UDP flows) have two
// places. When such a map is half full, a larger one comes before it, and the elements
// move (maps/resizable.go).
//
// # Sockets
//
// The programs remember the backend of a connected socket, and count each backend's
// sockets. When a backend with sockets is removed, the agent reads what they remember
// (sock/gc.go), finds the socket in its process and connects it anew. If it may not, the
// kernel destroys the socket (internal/sockdiag). After a start, and with
// every comparison, it does so for all sockets.
//
// # Packets
//
// Programs are at both ends of every interface, by tcx or, before Linux 6.6, clsact. They
// keep one rule: inside the node, a connection is the client talking to the backend. A
// packet becomes that as it comes in, and ceases to be it as it leaves (the picture is in
// packet/bpf/conn.h):
//
//   - ingress: the frontend becomes the backend; in answers to masqueraded connections the
//     node becomes the client.
//   - egress: the client becomes the node, if the connection is masqueraded; in answers the
//     backend becomes the frontend.
//
// So routing, reverse-path filter, ICMP errors and conntrack of the kernel see ordinary
// packets, and firewalls see real addresses. ICMP errors are translated by the packet that
// they quote. Two things go other ways: refusals go back where the packet came from; what
// the node's own sockets send to a frontend past the socket path (SCTP, frontends with
// source ranges) is sent on from egress, and its answers come back over the loopback.
//
// The programs remove ended connections by themselves and, when the table is full, those
// of least worth (packet/bpf/expire.h). So nothing is refused while no agent runs.
//
// With direct server return (packet/bpf/direct.h) this node sends the client's packets on
// to the backend's node, with an IP option that names the frontend; that node translates
// the answers.
//
// # Changes of the data plane
//
// When ebpf mode comes, connections that netfilter translates stay with it until they end
// (packet/takeover.go); a table of nf_tables, fairway-ebpf, has netfilter go on with them.
// While IPVS serves the node, TCP sockets are left to the packet path (sock/defer.go).
// When ebpf mode goes, dataplane/migrate moves its connections to netfilter
// (packet/handover.go).
//
// # Limits
//
// Connections past all frontends have no entries. A client may use one port both for a
// frontend and for the backend that it was given there. If the former is masqueraded, its
// packets carry a mark (TRANSLATED in packet/bpf/conn.h). If not, answers to the latter are
// taken for the former's.
package ebpf
