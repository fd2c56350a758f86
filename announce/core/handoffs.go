package core

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// KeepAtMost is how long a node that has given an address up goes on with its connections,
// to which the new owner leads their packets.
const KeepAtMost = time.Hour

// handoffs are the addresses of a link whose former owner goes on with its connections, and
// those that this node is the former owner of.
type handoffs struct {
	from map[netip.Addr]string
	// led are the addresses whose connections the kernel leads elsewhere, with the MAC of where to:
	// also in the name of an earlier process.
	led    map[netip.Addr][6]byte
	failed bool // the kernel can't
	began  time.Time
	// unknown are addresses whose connections are to be led elsewhere, once it is known which
	// of them are this node's own.
	unknown map[netip.Addr]bool
	// Of those that this node gave up: since when, and how many connections it has.
	since map[netip.Addr]time.Time
	own   map[netip.Addr]int
}

func newHandoffs(now time.Time) handoffs {
	return handoffs{
		from: map[netip.Addr]string{}, led: map[netip.Addr][6]byte{}, unknown: map[netip.Addr]bool{}, began: now,
		since: map[netip.Addr]time.Time{}, own: map[netip.Addr]int{},
	}
}

// Leads says what an earlier process left: addresses whose connections the kernel leads
// elsewhere, with the MAC of where to.
func (a *Announcer) Leads(led map[netip.Addr][6]byte) { a.handoffs.led = maps.Clone(led) }

// LeadFailed says that the kernel can't lead connections of an address elsewhere: no more is tried.
func (a *Announcer) LeadFailed(address netip.Addr) {
	a.handoffs.failed = true
	delete(a.handoffs.from, address)
	delete(a.handoffs.led, address)
}

func (a *Announcer) lead(address netip.Addr, node string) {
	to := a.peers.MACOf(node)
	if to == nil || a.handoffs.failed {
		return
	}
	a.handoffs.from[address], a.handoffs.led[address] = node, [6]byte(to)
	a.do(Lead{address, node})
}

// leads reports whether connections of an address are led to a node already.
func (a *Announcer) leads(address netip.Addr, node string) bool {
	to, led := a.handoffs.led[address]
	return led && slices.Equal(to[:], a.peers.MACOf(node))
}

// followFormers leads connections to the nodes that keep them, and ends that where no node
// does any more.
func (a *Announcer) followFormers(now time.Time) {
	formers := a.election.formers(now)
	h := &a.handoffs
	for _, address := range inOrder(maps.Keys(h.from)) {
		if formers[address] == "" {
			a.endLead(address, h.from[address])
		}
	}
	for _, address := range inOrder(maps.Keys(formers)) {
		node := formers[address]
		switch {
		case h.from[address] == node || h.failed:
		case a.claims[address] != nil && a.claims[address].announced.IsZero(): // then
		case a.leads(address, node): // an earlier process began it
			h.from[address] = node
		case h.from[address] != "" || h.own[address] > 0:
			a.lead(address, node)
		default:
			h.unknown[address] = true
			a.do(Recount{})
		}
	}
	for _, address := range inOrder(maps.Keys(h.led)) { // also of an earlier process
		to := h.led[address]
		node := a.peers.NodeOf(to[:])
		if h.from[address] == "" && (now.Sub(h.began) >= 2*LostAfter || a.election.isLost(node)) {
			a.endLead(address, node)
		}
	}
}

func (a *Announcer) endLead(address netip.Addr, node string) {
	delete(a.handoffs.from, address)
	delete(a.handoffs.led, address)
	a.do(EndLead{address, node})
}

// ToCount lists the addresses of which the announcer has to know this node's connections.
func (a *Announcer) ToCount() []netip.Addr {
	return slices.AppendSeq(a.election.kept(), maps.Keys(a.handoffs.unknown))
}

// IsUrgent reports whether something waits for connections to be counted.
func (a *Announcer) IsUrgent() bool {
	counts := slices.ContainsFunc(a.election.kept(), func(address netip.Addr) bool {
		_, known := a.handoffs.own[address]
		return !known // they are told from others' when the address comes back
	})
	return counts || len(a.handoffs.unknown) > 0 || a.Unsettled() > 0
}

// Unsettled counts the addresses of which it isn't known yet how many connections this node keeps.
func (a *Announcer) Unsettled() int { return a.election.unsettled() }

// IsCounted reports whether this node's connections of an address are known: Lead may need them.
func (a *Announcer) IsCounted(address netip.Addr) bool {
	_, known := a.handoffs.own[address]
	return known
}

// IsIdle reports whether nothing is left to do on the link for addresses that this node may
// not own.
func (a *Announcer) IsIdle() bool { return len(a.claims) == 0 && len(a.election.kept()) == 0 }

// Count takes in how many connections this node has of the addresses that were asked for.
func (a *Announcer) Count(now time.Time, asked map[netip.Addr]bool, found map[netip.Addr]int) []Effect {
	h := &a.handoffs
	for _, address := range a.election.kept() {
		if !asked[address] {
			continue // it has been given up since
		}
		if h.since[address].IsZero() {
			h.since[address] = now
		}
		if (found[address] > 0 || h.from[address] != "") && now.Sub(h.since[address]) < KeepAtMost {
			h.own[address] = found[address]
			a.election.keep(address)
			continue
		}
		a.election.letGo(address)
		delete(h.since, address)
		delete(h.own, address)
	}
	formers := a.election.formers(now)
	for _, address := range inOrder(maps.Keys(h.unknown)) {
		if !asked[address] {
			continue
		}
		delete(h.unknown, address)
		if node := formers[address]; node != "" {
			h.own[address] = found[address]
			a.lead(address, node)
			delete(h.own, address)
		}
	}
	a.send(a.election.adverts(true))
	return a.taken()
}

// Keep is told of addresses that this node doesn't own and has connections of.
func (a *Announcer) Keep(addresses []netip.Addr) []Effect {
	for _, address := range addresses {
		a.election.keep(address)
	}
	a.send(a.election.adverts(true))
	return a.taken()
}
