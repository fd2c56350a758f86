package doctor

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/explain"
)

// Evidence is what the checks look at. What is nil or empty isn't checked, and
// the report says so.
type Evidence struct {
	Objects  *explain.Objects
	Question explain.Question
	Service  *corev1.Service // nil if there is no such Service, or none was asked about
	Report   *explain.Report // what nodes make of the question
	Host     *Host           // this machine
	HostNode string          // its node; "" if that isn't known
	Agents   []Agent         // those that were asked
	NoAgents string          // why none was; "" if it doesn't matter
	NotAsked []string        // agents of which nodes didn't answer, and why
	Kernel   []Kernel        // one for each agent whose kernel was compared
	Client   *Client         // the pod that asks, if it was looked into
	Flows    []Flow          // to the Service, that conntrack tables of nodes hold
	NoFlows  string          // why they couldn't be read; "" if they were
	Probe    Prober          // sends packets from this machine
	NotHere  string          // why this machine isn't looked at; "" if it is
	Domain   string          // of the cluster's names
}

// Client is what was found in the pod that asks.
type Client struct {
	// Resolvers are the resolv.conf files of its processes (resolv.conf(5)).
	Resolvers []Resolver
}

// Resolver is what a resolv.conf says.
type Resolver struct{ Servers, Search []string }

// Flow is a connection of the conntrack table of a node, which was there both times
// that the table was read.
type Flow struct {
	Node, Proto      string // "udp"
	Client, Frontend netip.AddrPort
	Backend          netip.AddrPort // where the packets go; Frontend if they aren't translated
}

// Host are facts of a machine.
type Host struct {
	// Sysctls by name ("net.ipv4.ip_forward"); those that can't be read are missing.
	Sysctls map[string]string
	// Chains are the base chains of nf_tables, all variants of iptables included.
	Chains []Chain
	// Full and Clashed are the packets that conntrack has dropped, since there is this network
	// namespace: for want of room, and since another one had the same addresses and ports.
	Full, Clashed uint64
	// Unreadable says what couldn't be looked at, and why.
	Unreadable []string
}

// Chain is a chain that packets enter by themselves, or one with a name that says
// whose it is.
type Chain struct {
	Family, Table, Name string
	Hook                string // "forward", "input", ...; "" for chains that others jump to
	Drops               bool   // packets that no rule decides on
	Rules               int
	Legacy              bool // of iptables-legacy
}

// Prober sends packets.
type Prober interface {
	// Connect tries to open a TCP connection. It returns "ok", "refused",
	// "timeout", or what else happened.
	Connect(ctx context.Context, to netip.AddrPort) string
	// ConnectFrom is Connect from the network namespace of this machine that has an
	// address; "" if there is none, or it can't be entered.
	ConnectFrom(ctx context.Context, from netip.Addr, to netip.AddrPort) string
	// Echo sends a ping that must not be fragmented, a small one or one as large as
	// the route says that it may be. It returns "ok", or what happened.
	Echo(ctx context.Context, to netip.Addr, full bool) string
	// AtLoopback finds who listens at the port at a loopback address only, where
	// this machine has the address; invalid if nobody does.
	AtLoopback(to netip.AddrPort) netip.AddrPort
	// Lookup asks a DNS server for the addresses of a name, over "udp" or "tcp".
	Lookup(ctx context.Context, server netip.AddrPort, network, name string) ([]netip.Addr, error)
}
