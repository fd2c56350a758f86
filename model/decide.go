package model

import (
	"net/netip"
	"slices"
)

// Packet is the first packet of a connection or flow, as it reaches this node
// or leaves one of its processes.
type Packet struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto            Protocol
	In               string // the interface it came in through; "" if a process of this node sent it
}

// Action is what happens to a packet.
type Action uint8

// The actions.
const (
	Pass    Action = iota // not Service traffic: untouched
	Forward               // to one of the verdict's backends
	Refuse                // answered with a refusal
	Discard               // dropped without an answer
)

// String names the action.
func (a Action) String() string {
	return [...]string{"pass", "forward", "refuse", "discard"}[a]
}

// Verdict is what a table says about a packet, and why.
type Verdict struct {
	Action   Action
	Origin   Origin
	Reason   Reason
	Frontend *Frontend // nil unless one recognised the packet
	Pool     *Pool     // nil unless the packet was let in
	// Masquerade says that the source is replaced whichever backend is chosen.
	// Ask Masquerades: a pod that reaches itself is masqueraded anyway.
	Masquerade bool
	// Direct says that a backend on another node answers without this one (see
	// Route.Direct). What client and backend see is the same as if it passed:
	// the backend the client's address, the client the frontend's.
	Direct bool
	Src    netip.Addr
}

// Reason says which line of the table decided.
type Reason uint8

// The reasons.
const (
	NotAService      Reason = iota // no frontend, not a reserved address
	Exempted                       // somebody else serves the address
	UnknownPort                    // reserved address that no frontend serves on this port
	SourceNotAllowed               // outside the frontend's Sources
	NoBackend                      // the pool is empty
	HasBackend                     // forwarded
)

// String says the reason in words.
func (r Reason) String() string {
	return [...]string{
		"not a Service address",
		"the address is served by another proxy",
		"nothing serves this port of a Service address",
		"the source address is not in the allowed ranges",
		"the Service port has no endpoint to use",
		"forwarded to an endpoint",
	}[r]
}

// Decide is the specification: what happens to the first packet of a
// connection. Session affinity and schedulers narrow the choice among
// [Verdict.Backends] over time; they never leave it.
func (t *Table) Decide(p Packet) Verdict {
	v := Verdict{Origin: t.Origin(p), Src: p.Src}
	front := t.Lookup(Key{Addr: p.Dst, Port: p.DstPort, Proto: p.Proto})
	if front == nil {
		v.Action, v.Reason = t.decideUnknown(p.Dst)
		return v
	}
	v.Frontend = front
	if front.Sources != nil && !containsAddr(front.Sources, p.Src) {
		v.Action, v.Reason = Discard, SourceNotAllowed
		return v
	}
	route := front.Routes[v.Origin]
	v.Pool = t.Pool(route.Pool)
	if len(v.Pool.Backends) == 0 {
		v.Action, v.Reason = Refuse, NoBackend
		if v.Pool.Empty == Drop {
			v.Action = Discard
		}
		return v
	}
	v.Action, v.Reason = Forward, HasBackend
	v.Masquerade, v.Direct = route.Masquerade && !route.Direct, route.Direct
	return v
}

// Origin says where a packet comes from.
func (t *Table) Origin(p Packet) Origin {
	switch {
	case p.In == "":
		return FromNode
	case t.Settings.Pods.Matches(p.Src, p.In):
		return FromPod
	}
	return FromOutside
}

func (t *Table) decideUnknown(dst netip.Addr) (Action, Reason) {
	switch {
	case !containsAddr(t.Settings.Reserved, dst):
		return Pass, NotAService
	case slices.Contains(t.Settings.Exempt, dst):
		return Pass, Exempted
	}
	return Refuse, UnknownPort
}

func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Backends are those the packet may be sent to; nil unless it is forwarded.
func (v Verdict) Backends() []Backend {
	if v.Action != Forward {
		return nil
	}
	return v.Pool.Backends
}

// Masquerades reports whether the packet's source is replaced when it is sent
// to b: if the route says so, or if a pod reaches itself, which would answer
// itself past the translation otherwise (hairpin).
func (v Verdict) Masquerades(b Backend) bool {
	return v.Masquerade || b.Addr == v.Src
}
