package announce

import (
	"net/netip"
	"time"
)

// Report is what a node says of the addresses that it could announce.
type Report struct {
	Node      string    `json:"node"`
	Addresses []Address `json:"addresses"`
	// Sessions with routers.
	Sessions []Session `json:"sessions,omitempty"`
	// Unfit says why the node must not announce anything; "" if it may.
	Unfit string `json:"unfit,omitempty"`
	// Off says that the agent announces nothing, and Rival that MetalLB's speaker announces
	// on this node in its place: then what the node says is no proof that nobody does.
	Off   bool `json:"off,omitempty"`
	Rival bool `json:"rival,omitempty"`
	// Kept are the connections that this node goes on with, by address, though it has given
	// the address up: the new owner leads their packets here.
	Kept map[netip.Addr]int `json:"kept,omitempty"`
	// Uncounted is the number of addresses that this node gives up, or has given up, and whose
	// connections it has not counted yet.
	Uncounted int `json:"uncounted,omitempty"`
	// Faults name what of the configuration is not in force, Notes what is accepted
	// and has no effect.
	Faults []string `json:"faults,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Session is a BGP session.
type Session struct {
	Peer    string     `json:"peer"` // the BGPPeer's name
	Address netip.Addr `json:"address,omitzero"`
	ASN     uint32     `json:"asn,omitempty"`
	State   string     `json:"state"`
	// Since is when the session was established; zero if it isn't.
	Since time.Time `json:"since,omitzero"`
	// Prefixes that the router has been told.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// LastError is why the last session ended, or there was none, and ErrorAt when.
	LastError string    `json:"lastError,omitempty"`
	ErrorAt   time.Time `json:"errorAt,omitzero"`
	// Note says what the router doesn't take.
	Note string `json:"note,omitempty"`
	// BFD is the state of the BFD session; "" without one.
	BFD string `json:"bfd,omitempty"`
}

// Conditions of a node's ConfigurationState.
const (
	// ConditionKeeps says, in its message, how many connections the node has of addresses that
	// it gave up. It is Unknown while these are being counted.
	ConditionKeeps = "KeepsConnections"
	// ConditionMay says whether the node may announce, as its agent knows it, or why not.
	ConditionMay = "MayAnnounce"
)

// The protocols of addresses.
const (
	Layer2 = "layer2"
	BGP    = "bgp"
)

// Address is one address on one link, or as routers know it.
type Address struct {
	Address   netip.Addr `json:"address"`
	Protocol  string     `json:"protocol,omitempty"` // Layer2 or BGP; "" if it is announced by neither
	Services  []string   `json:"services,omitempty"`
	Pool      string     `json:"pool,omitempty"`
	Interface string     `json:"interface,omitempty"`
	// Peers by name that have been told the address.
	Peers []string `json:"peers,omitempty"`
	// Owner is the node that answers, if one is known.
	Owner string `json:"owner,omitempty"`
	// Since is when this node began to answer; zero if it doesn't.
	Since time.Time `json:"since,omitzero"`
	// Conflict is the MAC of a machine that is none of the cluster's and has the address, too.
	Conflict string `json:"conflict,omitempty"`
	// WhyNot says why this node doesn't answer.
	WhyNot string `json:"whyNot,omitempty"`
}
