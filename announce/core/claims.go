package core

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// The times of a claim.
const (
	// Before an address that nobody owned is announced for good, the link is asked so
	// often, at such a distance, whether somebody has it. Who has it answers the first
	// question in less than firstWait, unless it sleeps: then the address is announced
	// already, and given up when the answer comes.
	probes     = 3
	probeEvery = tickEvery
	firstWait  = 5 * time.Millisecond
	// At a take-over all machines are told at once, and again every
	// gratuitousEvery for gratuitousFor, as MetalLB does.
	gratuitousEvery = 1100 * time.Millisecond
	gratuitousFor   = 5 * time.Second
)

// claim is an address that this node owns on the link.
type claim struct {
	probes    int       // still to be sent; after the last one it is announced
	next      time.Time // when to send the next probe, or to tell all machines again
	announced time.Time // zero before
	confirmed bool      // nobody else has it
	from      string    // the node that goes on with its connections; "" if none does
	careful   bool      // somebody else had it lately: RFC 5227's times
	waited    int       // looks at which an answer may not have been read yet
}

// atOnce is how many claims are carried out in one go, and mostReminders of how many the other
// machines are reminded in a tick: what other nodes say is to be read in between, and has its
// place on the link.
const (
	atOnce        = 32
	mostReminders = 100
	// mostWaited is how many looks an address is put off by what is to be read yet.
	mostWaited = 20
)

// apply begins and ends to answer for addresses.
func (a *Announcer) apply(now time.Time, changes []change) {
	for _, c := range changes {
		if !c.Owner {
			a.release(c.Address)
			a.log(slog.LevelInfo, "another node answers for the address now, or none", "address", c.Address)
			a.do(Recount{})
			continue
		}
		a.do(Claim{c.Address})
		claim := &claim{next: now, from: c.From}
		a.claims[c.Address] = claim
		if c.Unsettled && c.From != "" { // soon
			claim.from, a.handoffs.unknown[c.Address] = "", true
			a.do(Recount{})
		}
		if !c.Inherited {
			claim.probes, claim.next = a.ahead.take(c.Address, now)
			claim.careful = a.conflicts.needsCare(c.Address)
			a.fresh[c.Address] = claim
			a.do(Hurry{})
		}
		a.due = append(a.due, c.Address)
		a.election.putOff(c.Address, !c.Adopted)
	}
	if !a.election.again.IsZero() {
		a.do(Hurry{})
	}
	if len(changes) > 0 {
		a.carryOut(now)
		a.do(Changed{})
	}
}

// carryOut begins to answer for some of the addresses that were claimed, and tells other
// nodes what has changed.
func (a *Announcer) carryOut(now time.Time) {
	n := min(len(a.due), atOnce)
	if n > 0 && now.Before(a.election.ready) && a.election.isPutOff(a.due[0]) {
		n = 0 // another node may have claimed them while this one slept
	}
	for _, address := range a.due[:n] {
		a.election.putOff(address, false)
		if c := a.claims[address]; c != nil && c.announced.IsZero() && !now.Before(c.next) {
			a.attend(now, address, c)
		}
	}
	a.due = a.due[n:]
	a.send(a.election.adverts(true))
	if n > 0 && len(a.due) > 0 {
		a.do(Hurry{})
	}
}

// release ends the answers for an address.
func (a *Announcer) release(address netip.Addr) {
	delete(a.claims, address)
	a.do(Release{address})
}

// remind repeats the gratuitous announcements that are due.
func (a *Announcer) remind(now time.Time) {
	var due []netip.Addr
	for address, c := range a.claims {
		if c.confirmed && !c.next.IsZero() && !now.Before(c.next) {
			due = append(due, address)
		}
	}
	slices.SortFunc(due, netip.Addr.Compare)
	for _, address := range due[:min(len(due), mostReminders)] {
		a.attend(now, address, a.claims[address])
	}
	if a.conflicts.expire(now) {
		a.stand(now)
	}
	for _, address := range a.conflicts.toAsk(now) {
		if c := a.claims[address]; c != nil && c.confirmed {
			a.do(Probe{address})
		}
	}
}

// attend does what is next for an address.
func (a *Announcer) attend(now time.Time, address netip.Addr, c *claim) {
	asked := c.probes < probes
	switch {
	case c.careful && c.announced.IsZero() && c.probes > 0:
		a.do(Probe{address})
		c.probes--
		c.next = now.Add(a.nextQuestion(c.probes))
		return
	case c.probes > 0 && (!asked || !c.announced.IsZero()):
		a.do(Probe{address})
		c.probes--
		c.next = now.Add(probeEvery)
		if !asked {
			c.next = now.Add(firstWait)
		}
		return
	case c.announced.IsZero() && c.probes > 0 && c.waited < mostWaited && a.claimsBehind:
		c.waited++
		c.next = now.Add(time.Millisecond)
		return
	case c.announced.IsZero():
		a.announce(now, address, c)
	case !c.confirmed:
		a.confirm(address, c)
		c.next = c.announced.Add(gratuitousEvery)
		return
	default:
		c.next = now.Add(gratuitousEvery)
		if now.Sub(c.announced) > gratuitousFor {
			c.next = time.Time{}
		}
	}
	a.do(TellAll{address})
}

// announce begins to answer for an address.
func (a *Announcer) announce(now time.Time, address netip.Addr, c *claim) {
	if c.from != "" {
		a.lead(address, c.from) // before anybody is told
	}
	delete(a.handoffs.since, address) // it isn't kept any more
	delete(a.handoffs.own, address)
	c.announced = now
	if s := a.election.own[address]; s != nil {
		a.do(Answer{address, s.Epoch})
	}
	a.log(slog.LevelInfo, "this node answers for the address now", "address", address)
	a.do(Changed{})
	c.next = now.Add(gratuitousEvery)
	if c.probes > 0 {
		c.next = now.Add(probeEvery)
	} else {
		a.confirm(address, c)
	}
}

// confirm ends looking for another machine that has the address.
func (a *Announcer) confirm(address netip.Addr, c *claim) {
	c.confirmed = true
	delete(a.fresh, address)
	a.election.confirm(address)
	a.do(Changed{})
}

// nextQuestion is how long a claim with care waits after a question.
func (a *Announcer) nextQuestion(left int) time.Duration {
	if left == 0 {
		return carefulWait
	}
	return carefulMin + time.Duration(a.rand.Int64N(int64(carefulMax-carefulMin)))
}
