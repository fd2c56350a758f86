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
	Agents   []Agent         // those that were asked
	NoAgents string          // why none was; "" if it doesn't matter
	Kernel   []Kernel        // one for each agent whose kernel was compared
	Probe    Prober          // sends packets from this machine
	NotHere  string          // why this machine isn't looked at; "" if it is
	Domain   string          // of the cluster's names
}

// Host are facts of a machine.
type Host struct {
	// Sysctls by name ("net.ipv4.ip_forward"); those that can't be read are missing.
	Sysctls map[string]string
	// Chains are the base chains of nf_tables, all variants of iptables included.
	Chains []Chain
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
	// AtLoopback finds who listens at the port at a loopback address only, where
	// this machine has the address; invalid if nobody does.
	AtLoopback(to netip.AddrPort) netip.AddrPort
	// Lookup asks a DNS server for the addresses of a name, over "udp" or "tcp".
	Lookup(ctx context.Context, server netip.AddrPort, network, name string) ([]netip.Addr, error)
}
