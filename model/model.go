// Package model says what Service traffic goes where on one node. It doesn't
// know Service types, policies, topology or readiness (package compile decides
// these), nor kernel objects (the data planes make them). It is also the
// executable specification: [Table.Decide] gives the
// verdict on a packet, and every data plane must agree with it on every packet.
//
// Values in this package are immutable once they are in a [Table]. Tables
// share whatever did not change between them, so that making the next table
// and comparing two of them cost what the change costs.
package model

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Protocol is an IP protocol number, as in the IPv4 header's protocol field.
type Protocol uint8

// The protocols that Services speak (IANA protocol numbers).
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String gives the protocol's name in lower case, as iptables and nft spell it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("proto-%d", uint8(p))
}

// Key is what a packet is recognised by: its destination. Keys are unique in a
// table. The unspecified address of a family (0.0.0.0, ::) stands for all of
// Settings.NodePortAddrs in that family: a node port is one frontend.
type Key struct {
	Addr  netip.Addr // never an IPv4-mapped IPv6 address, never a zone
	Port  uint16
	Proto Protocol
}

// NodePortKey is the key of a node port in a family.
func NodePortKey(ipv6 bool, port uint16, proto Protocol) Key {
	if ipv6 {
		return Key{netip.IPv6Unspecified(), port, proto}
	}
	return Key{netip.IPv4Unspecified(), port, proto}
}

// IsNodePort reports whether the key stands for all node-port addresses of its
// family.
func (k Key) IsNodePort() bool { return k.Addr.IsUnspecified() }

// At is the key with another address.
func (k Key) At(a netip.Addr) Key {
	k.Addr = a
	return k
}

// String gives the key as "10.96.0.1:443/tcp".
func (k Key) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + k.Proto.String()
}

// Compare orders keys by family, address, port and protocol.
func (k Key) Compare(o Key) int {
	if c := k.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	if k.Port != o.Port {
		return int(k.Port) - int(o.Port)
	}
	return int(k.Proto) - int(o.Proto)
}

// Origin is where a packet comes from, as this node sees it.
type Origin uint8

// The three origins. Three are needed: under externalTrafficPolicy Local, pods
// reach all endpoints with their source kept, the node reaches all endpoints
// masqueraded, and outside reaches only local endpoints with the source kept.
const (
	FromPod     Origin = iota // from a pod, this node's or another's (see PodMatch)
	FromNode                  // sent by a process of this node itself
	FromOutside               // anything else that arrives on an interface
	NumOrigins  = 3
)

// String names the origin for people.
func (o Origin) String() string {
	return [...]string{"pod", "node", "outside"}[o]
}

// FrontendType says which of a Service's addresses a frontend is. Verdicts don't
// depend on it: planes use it only to file a frontend where operators look for
// it (KUBE-NODEPORTS, the KUBE-EXTERNAL-IP set, a comment).
type FrontendType uint8

// The entrances, named as kube-proxy's comments name them.
const (
	ClusterIP FrontendType = iota
	NodePort
	ExternalIP
	LoadBalancerIP
)

// String names the entrance as comments in rules do.
func (e FrontendType) String() string {
	return [...]string{"cluster IP", "node port", "external IP", "loadbalancer IP"}[e]
}

// Frontend is an address that this node forwards, or a port at all of its
// node-port addresses.
type Frontend struct {
	Key
	Name         string            // "namespace/service:port", for people and for names of kernel objects
	FrontendType FrontendType      // for filing only
	Routes       [NumOrigins]Route // by Origin
	// Sources are the prefixes from which packets are let in, sorted; nil lets
	// in all, an empty list none. Others are dropped without an answer.
	Sources []netip.Prefix
}

// ServiceOf is the Service, as "namespace/service", that a frontend's or pool's name is of.
func ServiceOf(name string) string {
	service, _, _ := strings.Cut(name, ":")
	return service
}

// Route is where packets of one origin go.
type Route struct {
	Pool       PoolID // must be in the table
	Masquerade bool   // replace the source by an address of this node
	// Direct leaves out the masquerading: backends see the client's address, and
	// those on other nodes answer the client themselves, in the frontend's name,
	// without this node (direct server return). It is only there beside
	// Masquerade, which is what planes do that lack it (kernel.DirectReturn).
	Direct bool
	// Stable has TCP connections survive that come in at another node in the
	// middle, because a router has another idea or the address has moved: what
	// nobody knows here goes on to where [Table.Resume] says, and isn't reset. It
	// is only there beside Direct, with a pool that chooses by Maglev hashing.
	Stable bool
}

// PoolID names a pool. It is comparable and stable as long as the Service port
// lives, whatever happens to its endpoints.
type PoolID struct {
	Name  string   // "namespace/service:port", as in Frontend.Name
	Proto Protocol //
	IPv6  bool     // family of the backends
	Local bool     // whether it holds this node's endpoints only
}

// String gives the id as "default/web:http/tcp", with "6" after the protocol
// for IPv6 and " local" behind for a local pool.
func (id PoolID) String() string {
	s := id.Name + "/" + id.Proto.String()
	if id.IPv6 {
		s += "6"
	}
	if id.Local {
		s += " local"
	}
	return s
}

// Compare orders ids by name, protocol, family and locality.
func (id PoolID) Compare(o PoolID) int {
	switch {
	case id.Name != o.Name:
		if id.Name < o.Name {
			return -1
		}
		return 1
	case id.Proto != o.Proto:
		return int(id.Proto) - int(o.Proto)
	case id.IPv6 != o.IPv6:
		return boolOrder(o.IPv6)
	case id.Local != o.Local:
		return boolOrder(o.Local)
	}
	return 0
}

func boolOrder(second bool) int {
	if second {
		return -1
	}
	return 1
}

// Pool is a set of backends and the way of choosing one. The frontends of a
// Service port share their pools, so that an endpoint change is one change
// however many addresses lead to it.
type Pool struct {
	ID PoolID
	// Backends take new connections. Sorted by Compare, no address and port
	// twice, weights never 0.
	Backends []Backend
	// Draining backends take no new connections; established ones, UDP flows
	// included, live on until the backend leaves this list. Sorted, and
	// disjoint from Backends.
	Draining []Backend
	// Stable pools have connections that go on when they come in at another node:
	// they have a second choice, too ([Pool.SecondChoices]).
	Stable bool
	// Empty is what happens to packets while there are no Backends.
	Empty Empty
	// Affinity, if not 0, sends a client address that was here within this
	// time to the backend it had, as long as that backend is in Backends.
	// Every new connection starts the time again. Clients are remembered per
	// pool: all entrances that lead to the pool share the memory.
	Affinity time.Duration
	// Scheduler asks for a way of choosing; "" leaves it to the plane, which
	// then gives each backend a share in proportion to its weight.
	Scheduler Scheduler
	// Orphans says what becomes of established TCP connections whose backend
	// is in neither list any more.
	Orphans Orphans
	// OrphanDeadline is how long orphans may live on under OrphansDeadline.
	OrphanDeadline time.Duration
}

// Empty is what a pool without backends answers.
type Empty uint8

// The answers. A rejection is a RST for TCP, an ABORT or ICMP error for SCTP
// and an ICMP port-unreachable error for UDP; a drop is silence.
const (
	Reject Empty = iota
	Drop
)

// Orphans is the fate of connections whose backend is gone for good.
type Orphans uint8

// The fates. Keep is what kube-proxy does: TCP is left to the end points. UDP
// flows of gone backends are always forgotten, whatever this says.
const (
	OrphansKeep     Orphans = iota
	OrphansReset            // reset at once
	OrphansDeadline         // reset after OrphanDeadline
)

// Scheduler is a way of choosing a backend, named as IPVS names it.
type Scheduler string

// The schedulers; a plane that lacks one says so (kernel.Unsupported) and falls back
// to its own default.
const (
	DefaultScheduler        Scheduler = ""
	Random                  Scheduler = "random"
	RoundRobin              Scheduler = "rr"
	WeightedRoundRobin      Scheduler = "wrr"
	LeastConnection         Scheduler = "lc"
	WeightedLeastConnection Scheduler = "wlc"
	DestinationHashing      Scheduler = "dh"
	SourceHashing           Scheduler = "sh"
	ShortestExpectedDelay   Scheduler = "sed"
	NeverQueue              Scheduler = "nq"
	MaglevHashing           Scheduler = "mh"      // of the client's address
	MaglevPortHashing       Scheduler = "mh-port" // of its address and port, as IPVS' mh with the flag of this name
)

// Schedulers are all that have a name.
func Schedulers() []Scheduler {
	return []Scheduler{
		Random, RoundRobin, WeightedRoundRobin, LeastConnection, WeightedLeastConnection,
		DestinationHashing, SourceHashing, ShortestExpectedDelay, NeverQueue, MaglevHashing,
		MaglevPortHashing,
	}
}

// Backend is one endpoint.
type Backend struct {
	Addr   netip.Addr
	Port   uint16
	Weight uint16 // share of new connections relative to the others; 1 unless somebody said otherwise
	Local  bool   // on this node
}

// AddrPort gives the backend's address and port.
func (b Backend) AddrPort() netip.AddrPort { return netip.AddrPortFrom(b.Addr, b.Port) }

// Compare orders backends by address and port, which identify them in a pool.
func (b Backend) Compare(o Backend) int { return b.AddrPort().Compare(o.AddrPort()) }
