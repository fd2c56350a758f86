package doctor

import (
	"context"
	"errors"
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
	Nodes    []Node          // that a packet may pass, and that were looked at
	NoNodes  string          // why none was; "" if it doesn't matter
	Agents   []Agent         // those that were asked
	NoAgents string          // why none was; "" if it doesn't matter
	NotAsked []string        // agents of which nodes didn't answer, and why
	Kernel   []Kernel        // one for each agent whose kernel was compared
	Client   *Client         // the pod that asks, if it was looked into
	Flows    []Flow          // to the Service, that conntrack tables of nodes hold
	NoFlows  string          // why they couldn't be read; "" if they were
	// Announced is what nodes say of the Service's load balancer addresses, and NoAnnounced
	// why that isn't known; "" if it is.
	Announced   []Announced
	NoAnnounced string
	// Scaled are the workloads of the Service's namespace that should have no pod now.
	Scaled []Workload
	Domain string // of the cluster's names
}

// Node is a node that a packet may pass, or this machine.
type Node struct {
	Name  string // "" for this machine, if no node's name is known to be its
	Host  *Host  // nil if its facts couldn't be read
	Probe Prober // sends packets from it; nil if it can't
}

// Announced is what one node says of one address.
type Announced struct {
	Address netip.Addr
	Node    string // that says it
	By      string // the node, if it answers or tells routers
	Owner   string // the node of its link that is to answer
	WhyNot  string // why it isn't the node itself
	Off     bool   // its agent announces nothing: another program may
	Rival   bool   // MetalLB's speaker announces there, which isn't asked
}

// Workload makes pods, and should have none now.
type Workload struct {
	Kind, Name string
	Labels     map[string]string // of its pods
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
	// UplinkBridges are the bridges that default routes lead to, where netfilter sees the
	// frames of all bridges.
	UplinkBridges []string
	// Unreadable says what couldn't be looked at, and why.
	Unreadable []string
}

// Chain is a chain that packets enter by themselves, or one with a name that says
// whose it is.
type Chain struct {
	Family, Table, Name string
	Hook                string // "forward", "input", ...; "" for chains that others jump to
	Drops               bool   // packets that no rule decides on
	DropsNames          bool   // a rule drops or rejects what goes to port 53
	Rules               int
	Legacy              bool // of iptables-legacy
}

// Prober sends packets.
type Prober interface {
	// Connect tries to open a TCP connection. It returns "ok", "refused",
	// "timeout", Prohibited and by whom, or what else happened.
	Connect(ctx context.Context, to netip.AddrPort) string
	// ConnectFrom is Connect from the network namespace of this machine that has an
	// address; "" if there is none, or it can't be entered.
	ConnectFrom(ctx context.Context, from netip.Addr, to netip.AddrPort) string
	// Echo sends a ping that must not be fragmented, a small one or one as large as
	// the route says that it may be. It returns "ok", or what happened. It begins at the
	// machine, or in the network namespace that has an address; "" as ConnectFrom.
	Echo(ctx context.Context, from, to netip.Addr, full bool) string
	// AtLoopback is the listener at the port that has a loopback address only, where
	// this machine has the address; invalid if there is none.
	AtLoopback(to netip.AddrPort) netip.AddrPort
	// Lookup asks a DNS server for the addresses of a name, over "udp" or "tcp". It begins at
	// the machine, or in the network namespace that has an address; the error is ErrNotThere
	// if there is none, or it can't be entered.
	Lookup(ctx context.Context, from netip.Addr, server netip.AddrPort, network, name string) ([]netip.Addr, error)
	// Resolvers are the resolv.conf files of the processes in the network namespace that has
	// an address.
	Resolvers(of netip.Addr) []Resolver
}

// Prohibited is how Connect's result begins where a router or firewall says that it lets
// nobody through: ICMP's "administratively prohibited".
const Prohibited = "prohibited by "

// ErrNotThere says that a machine has no network namespace with the address, or none that may
// be entered.
var ErrNotThere = errors.New("no network namespace here has the address")
