package trace

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nftrace"
)

// Packet is one packet's way through this node.
type Packet struct {
	// Node is the one that the packet passed, if it isn't the report's.
	Node  string `json:"node,omitempty"`
	Reply bool   `json:"reply,omitempty"`
	What  string `json:"what"` // "SYN", "SYN ACK", "RST", "UDP", ...
	// As it came to this node; Steps say where it was translated.
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	In          string         `json:"in,omitempty"`  // the interface it came by
	Out         string         `json:"out,omitempty"` // ... and left by
	Steps       []Step         `json:"steps,omitempty"`
	// Last is the last hook that it has passed: "input" if it was for this node,
	// "postrouting" if it was sent on.
	Last  string `json:"last,omitempty"`
	Again int    `json:"again,omitempty"` // how often it was sent again

	number int
	now    nftrace.Header
	hook   string
}

// Step is a rule whose conditions held, the policy of a chain, or a translation.
type Step struct {
	Hook   string `json:"hook,omitempty"`
	Family string `json:"family,omitempty"`
	Table  string `json:"table,omitempty"`
	Chain  string `json:"chain,omitempty"`
	Owner  string `json:"owner,omitempty"`  // who made the table or the chain, as far as names tell
	Ours   bool   `json:"ours,omitempty"`   // Fairway did
	Legacy bool   `json:"legacy,omitempty"` // the table is iptables-legacy's
	// Handle is the rule's, or its number in a chain of iptables-legacy.
	Handle  uint64 `json:"handle,omitempty"`
	Rule    string `json:"rule,omitempty"` // in words
	Verdict string `json:"verdict"`        // "accept", "drop", "jump CHAIN", "policy accept", "translated", ...
}

// Namer gives names to what the kernel tells by numbers.
type Namer interface {
	Interface(index int) string
	Rule(e nftrace.Event) string
	Base(e nftrace.Event) (nftrace.Base, bool)
}

// AddPackets notes the way of packets. Of packets that were sent again, the first is
// kept.
func (r *Report) AddPackets(events []nftrace.Event, n Namer) { r.addPackets("", r.plane, events, n) }

// AddPacketsOf notes what another node, with its data plane, has seen of packets that go to the
// endpoint.
func (r *Report) AddPacketsOf(node string, plane Plane, events []nftrace.Event, n Namer) {
	if r.Endpoint == nil {
		return
	}
	towards := map[int]bool{}
	var kept []nftrace.Event
	for _, e := range events {
		if e.Passed == nftrace.Begins && e.Header != nil {
			towards[e.Packet] = e.Header.Destination == r.Endpoint.Address
		}
		if towards[e.Packet] {
			kept = append(kept, e)
		}
	}
	r.addPackets(node, plane, kept, n)
}

func (r *Report) addPackets(node string, plane Plane, events []nftrace.Event, n Namer) {
	byNumber := map[int]*Packet{}
	for _, e := range inOrder(events, n) {
		p := byNumber[e.Packet]
		if p == nil {
			if e.Header == nil {
				continue // its beginning was lost
			}
			p = &Packet{Node: node, Reply: e.Reply, number: e.Packet, What: what(e.Header), Source: e.Header.Source, Destination: e.Header.Destination, now: *e.Header}
			byNumber[e.Packet] = p
			if first := r.same(p); first != nil {
				first.Again++
			} else {
				r.Packets = append(r.Packets, p)
			}
		}
		p.add(e, n, plane)
	}
}

// same is the packet that another is a repetition of; nil if there is none.
func (r *Report) same(p *Packet) *Packet {
	for _, one := range r.Packets {
		if one.Node == p.Node && one.Reply == p.Reply && one.What == p.What && one.Source == p.Source && one.Destination == p.Destination {
			return one
		}
	}
	return nil
}

// add adds what an event says.
func (p *Packet) add(e nftrace.Event, n Namer, plane Plane) {
	if base, ok := n.Base(e); ok {
		p.hook = base.Hook
	} else if e.Passed != "" && e.Passed != nftrace.Begins {
		p.hook = e.Passed
	}
	if e.In != 0 && p.In == "" {
		p.In = n.Interface(e.In)
	}
	if e.Out != 0 {
		p.Out = n.Interface(e.Out)
	}
	p.translated(e.Header)
	switch {
	case e.Passed == nftrace.Begins:
		return
	case e.Passed != "":
		p.Last = e.Passed
		return
	case e.Kind == nftrace.End:
		return
	}
	s := Step{Hook: p.hook, Family: e.Family, Table: e.Table, Chain: e.Chain, Handle: e.Handle, Verdict: e.Verdict}
	s.Owner, s.Ours = ownerOf(e, plane)
	switch e.Kind {
	case nftrace.Policy:
		s.Verdict = "policy " + e.Verdict
	case nftrace.Rule:
		s.Rule = n.Rule(e)
	}
	if s.Legacy = e.Legacy != nil; s.Legacy {
		s.Verdict, e.Target = nftrace.LegacyVerdict(e, n.Rule(e))
		if e.Kind == nftrace.Policy {
			s.Verdict = "policy " + s.Verdict
		}
	}
	if e.Target != "" {
		s.Verdict += " " + e.Target
	}
	p.Steps = append(p.Steps, s)
}

// translated notes that the headers aren't what they were.
func (p *Packet) translated(h *nftrace.Header) {
	if h == nil {
		return
	}
	var changes []string
	if h.Destination != p.now.Destination {
		changes = append(changes, fmt.Sprintf("destination %s -> %s", p.now.Destination, h.Destination))
	}
	if h.Source != p.now.Source {
		changes = append(changes, fmt.Sprintf("source %s -> %s", p.now.Source, h.Source))
	}
	if len(changes) > 0 {
		p.Steps = append(p.Steps, Step{Hook: p.hook, Verdict: "translated", Rule: strings.Join(changes, ", ")})
	}
	p.now = *h
}

// Dropped is the step at which the packet ended; nil if none did that.
func (p *Packet) Dropped() *Step {
	for i := range p.Steps {
		if v := p.Steps[i].Verdict; v == "drop" || v == "policy drop" {
			return &p.Steps[i]
		}
	}
	return nil
}

// End is the packet's source and destination, as last seen.
func (p *Packet) End() (source, destination netip.AddrPort) { return p.now.Source, p.now.Destination }

// arrived reports whether the packet passed this node, or reached it.
func (p *Packet) arrived() bool { return p.Last == "input" || p.Last == "postrouting" }

// what names a packet by its protocol, and TCP's by its flags.
func what(h *nftrace.Header) string {
	switch h.Proto {
	case unix.IPPROTO_TCP:
		var flags []string
		for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK"} {
			if h.TCPFlags&(1<<i) != 0 {
				flags = append(flags, name)
			}
		}
		return strings.Join(flags, " ")
	case unix.IPPROTO_UDP:
		return "UDP"
	case unix.IPPROTO_SCTP:
		return "SCTP"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "ICMP"
	}
	return fmt.Sprintf("protocol %d", h.Proto)
}
