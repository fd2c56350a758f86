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
// its place. One endpoint more or less is a member, a slot, or two, and the
// pool's counts.
package ebpf
