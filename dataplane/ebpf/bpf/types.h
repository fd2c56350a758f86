// SPDX-License-Identifier: Apache-2.0
//
// What the programs and the agent tell each other through maps. The agent has
// the same types from bpf2go.
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// struct address is an IPv6 address, or an IPv4 one mapped into IPv6 (RFC
// 4291, 2.5.5.2), in network byte order.
struct address {
	__u32 word[4];
};

// struct tuple is the first packet of a connection, as model.Packet.
struct tuple {
	struct address src, dst;
	__be16 sport, dport;
	__u8 proto;
	__u8 hook; // in keys of connections: see conn.h
	__u8 pad[2];
};

// Where a packet comes from: model.Origin.
enum origin { FROM_POD, FROM_NODE, FROM_OUTSIDE, ORIGINS };

// What happens to it: model.Action.
enum action { PASS, FORWARD, REFUSE, DISCARD };

// Why: model.Reason.
enum reason { NOT_A_SERVICE, EXEMPTED, UNKNOWN_PORT, SOURCE_NOT_ALLOWED, NO_BACKEND, HAS_BACKEND, REASONS };

// How a pool chooses: model.Scheduler.
enum scheduler { RANDOM, RR, WRR, LC, WLC, SED, NQ, SH, DH, MH, MH_PORT };

// A frontend is found by its address, port and protocol.
struct frontend_key {
	struct address addr;
	__be16 port;
	__u8 proto;
	__u8 pad;
};

enum frontend_flags {
	RESTRICTED = 1, // only the prefixes in its scope are let in
};

enum route_flags {
	MASQUERADE = 1,
	DIRECT_RETURN = 2, // backends of other nodes answer the client themselves: instead of MASQUERADE
	STABLE = 4,        // connections that came in at another node so far go on here
};

struct route {
	__u32 pool;
	__u32 flags;
};

struct frontend {
	__u32 id; // of its counters, and of its scope
	__u32 flags;
	struct route routes[ORIGINS];
};

enum pool_flags { DROP = 1 }; // what an empty pool does instead of refusing

// A pool has slots for its backends, each once, numbered from 0, and more slots
// for the same backends, as often as their weights say, numbered from MORE.
#define MORE 0x80000000

// Stable pools have slots for all of their backends beside, draining ones included,
// numbered from ALL.
#define ALL 0xc0000000

struct pool {
	__u32 backends; // slots that hold each backend once
	__u32 slots;    // all slots
	__u32 stride;   // wrr: has no factor in common with slots; mh: the number of places in its table
	__u32 affinity; // seconds; 0 without
	__u16 scheduler;
	__u16 flags;
};

struct slot_key {
	__u32 pool, index;
};

enum backend_flags {
	ACTIVE = 1, // takes new connections; otherwise it is draining
	LOCAL = 2,  // on this node
};

struct backend {
	struct address addr;
	__be16 port;
	__u16 weight;
	__u32 id; // of its counters and state
	__u32 flags;
};

// struct endpoint is a backend's address and port, as the programs remember it.
struct endpoint {
	struct address addr;
	__be16 port;
	__u16 pad;
};

// A backend is found in a pool by its address and port.
struct member_key {
	__u32 pool;
	struct endpoint to;
};

struct member {
	__u32 id;
	__u32 flags;
};

// The table of a pool that chooses by Maglev hashing is in pieces of so many places
// (model.Maglev). Each place names one of the slots that hold each backend once. Stable
// pools have another table, whose pieces are numbered from MORE, with the second choices
// (model.Pool.Seconds): one of the slots from ALL, or one that isn't there.
#define PLACES 1024

struct maglev {
	__u16 slot[PLACES];
};

// struct name is a pool's id in words, for people and for the agent's next life.
struct name {
	char text[256];
};

// Prefixes of several lists are in one trie, told apart by a scope: those of
// the settings, and those that a frontend's sources must be in, whose scope is
// the frontend's id. Ids begin after these.
enum scope { PODS = 1, RESERVED, EXEMPT, OF_NODE, PODS_KNOWN4, PODS_KNOWN6, SCOPES = 16 };

struct prefix {
	__u32 bits; // of scope and address
	__u32 scope;
	struct address addr;
};

// The reserved prefixes once more, as long as they are few, since every packet
// without connection is compared with them.
#define RANGES 4

struct range {
	struct address addr, mask;
};

struct ranges {
	__u32 known; // 1 more than there are in list; 0 if there are too many for it
	struct range list[RANGES];
};

// What clients are remembered by: their address, or, in the socket path, where
// there is none yet, their network namespace (see client_of in sock.c).
struct client_key {
	__u32 pool;
	struct address client;
};

struct client {
	struct endpoint to;
	__u32 pad;
	__u64 seen; // ktime, ns
};

// Counters and state are in chunks that the agent adds as ids come up: chunk
// id / CHUNK, place id % CHUNK.
#define CHUNK 1024
#define CHUNKS 4096

// Counters have a backend's or frontend's id. Packets and bytes are those
// of the packet path, both ways; frontends don't count them.
struct counters {
	__u64 connections, packets, bytes;
	__u64 not_allowed; // of frontends: packets from sources that aren't let in
	__u64 no_backend;  // of frontends: packets for which there was no backend
};

struct state {
	__u64 active; // a backend's open connections
	union {
		__u64 cursor;  // where a pool's turn is
		__u64 sockets; // that are connected to a backend (sock.c)
	};
};

// struct decision is what decide says about a packet.
struct decision {
	enum action action;
	enum reason reason;
	struct frontend_key front; // the frontend, if one recognised the packet
	__u32 front_id;            // 0 if none
	__u32 pool;
	struct backend to; // if it is forwarded
	__u8 masquerade;   // the source becomes one of the node
	__u8 direct;
	__u8 known;   // session affinity chose
	__u8 resumed; // in the middle of a stable connection
	__u8 steps;   // with which that begins here: work.h
};
