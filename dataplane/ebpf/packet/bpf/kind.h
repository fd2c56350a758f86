// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Kinds of entries of the connection table (conn.h), and what is to know of each. Nothing
// else asks what a kind's number is made of.
//
// C is the client, V the frontend, B the backend, and N the node, by which an endpoint knows
// a masqueraded connection and the node's own.
#pragma once

#include "types.h"

enum hook { AT_INGRESS = 1, AT_EGRESS };

// Kinds have the numbers that the flags in their place made in former versions: so a node's
// connections survive an upgrade, and the way back.
enum kind {
	CLIENTS = 8, // forwarded as they are
	ANSWERS = 9,

	MASQ_CLIENTS = 24,
	MASQ_LEAVING = 16,
	MASQ_UNNAMED = 18, // as MASQ_LEAVING, and it isn't known yet with which address and port
	MASQ_BACK = 17,
	MASQ_ANSWERS = 25,

	OWN_CLIENTS = 12, // of sockets of the node
	OWN_ANSWERS = 13,

	SENT_CLIENTS = 136, // led to another node: answers don't come by (direct.h)
	SENT_ANSWERS = 129, // so this is their place only

	LED_CLIENTS = 128, // led here by another node
	LED_ANSWERS = 137,
	LED_OWN_CLIENTS = 132, // or by this one, to itself
	LED_OWN_ANSWERS = 141,

	NETFILTER_CLIENTS = 40, // netfilter translates them, since before the programs came
	NETFILTER_ANSWERS = 33,
	NETFILTER_OWN_CLIENTS = 44,
	NETFILTER_OWN_ANSWERS = 37,

	OUTGOING = 3, // answers of flows that aren't ours (outgoing.h)

	FROZEN = 64, // beside any other: changes hands, so its packets are to be sent again
	KINDS = 192, // with FROZEN taken off
} __attribute__((packed));

// Whose it is to translate packets.
enum owner { OURS, NETFILTERS, NOBODYS } __attribute__((packed));

// Where the entry of the other direction is (partner_key).
enum partner {
	TURNED,       // what packets become, turned round, at the other hook
	TURNED_HERE,  // at the same hook
	AS_IS,        // what they look like, turned round, at the other hook
	AS_IS_HERE,   // at the same hook
} __attribute__((packed));

// Which of a connection's packets pass this node (timeout_of).
enum packets_seen { BOTH_WAYS, CLIENTS_ONLY, THESE_ONLY } __attribute__((packed));

enum traits {
	TO_CLIENT = 1,
	LISTED = 2,      // the one of its connection's that is in the queue (expire.h)
	COUNTED = 4,     // its packets count for the backend
	HOLDS = 8,       // a client's, for which the backend counts as busy (connections)
	MASQUERADED = 16, // as it looks outside the node
	OF_NODE_SOCKET = 32,
	LED = 64,        // its connection began at another node
} __attribute__((packed));

struct kind_traits {
	enum owner owner;
	enum partner partner;
	enum packets_seen seen;
	enum traits traits;
};

const struct kind_traits kinds[KINDS] = {
	[CLIENTS] = {OURS, TURNED, BOTH_WAYS, COUNTED | HOLDS},        // C:c → V:v, ingress
	[ANSWERS] = {OURS, TURNED, BOTH_WAYS, TO_CLIENT | LISTED | COUNTED}, // B:b → C:c, egress

	[MASQ_CLIENTS] = {OURS, TURNED, BOTH_WAYS, COUNTED | HOLDS},   // C:c → V:v, ingress
	[MASQ_LEAVING] = {OURS, TURNED, BOTH_WAYS, MASQUERADED},       // C:c → B:b, egress
	[MASQ_UNNAMED] = {OURS, TURNED, BOTH_WAYS, MASQUERADED},
	[MASQ_BACK] = {OURS, TURNED, BOTH_WAYS, TO_CLIENT},            // B:b → N:n, ingress
	[MASQ_ANSWERS] = {OURS, TURNED, BOTH_WAYS, TO_CLIENT | LISTED | COUNTED | MASQUERADED}, // B:b → C:c, egress

	[OWN_CLIENTS] = {OURS, TURNED, BOTH_WAYS, COUNTED | HOLDS | OF_NODE_SOCKET}, // N:n → V:v, egress
	[OWN_ANSWERS] = {OURS, TURNED, BOTH_WAYS, TO_CLIENT | LISTED | COUNTED | OF_NODE_SOCKET}, // B:b → N:n, ingress

	[SENT_CLIENTS] = {OURS, TURNED, CLIENTS_ONLY, COUNTED | HOLDS}, // C:c → V:v, ingress
	[SENT_ANSWERS] = {OURS, TURNED, CLIENTS_ONLY, TO_CLIENT | LISTED}, // B:b → C:c, egress

	[LED_CLIENTS] = {OURS, AS_IS, BOTH_WAYS, LED},                 // C:c → B:b, ingress
	[LED_ANSWERS] = {OURS, AS_IS, BOTH_WAYS, LED | TO_CLIENT | LISTED | COUNTED}, // B:b → C:c, egress
	[LED_OWN_CLIENTS] = {OURS, AS_IS_HERE, BOTH_WAYS, LED | OF_NODE_SOCKET}, // N:n → B:b, ingress
	[LED_OWN_ANSWERS] = {OURS, AS_IS_HERE, BOTH_WAYS, LED | TO_CLIENT | LISTED | COUNTED | OF_NODE_SOCKET}, // B:b → N:n, ingress

	[NETFILTER_CLIENTS] = {NETFILTERS, TURNED_HERE, BOTH_WAYS, COUNTED | HOLDS}, // C:c → V:v, ingress
	[NETFILTER_ANSWERS] = {NETFILTERS, TURNED_HERE, BOTH_WAYS, TO_CLIENT | LISTED}, // B:b → N:n, ingress
	[NETFILTER_OWN_CLIENTS] = {NETFILTERS, AS_IS, BOTH_WAYS, COUNTED | HOLDS | OF_NODE_SOCKET}, // N:n → B:b, egress
	[NETFILTER_OWN_ANSWERS] = {NETFILTERS, AS_IS, BOTH_WAYS, TO_CLIENT | LISTED | OF_NODE_SOCKET}, // B:b → N:n, ingress

	[OUTGOING] = {NOBODYS, TURNED, THESE_ONLY, TO_CLIENT | LISTED}, // B:b → N:n, ingress
};
