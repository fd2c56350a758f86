package l2

import (
	"net/netip"
	"time"
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
func (l *Link) apply(now time.Time, changes []change) {
	for _, c := range changes {
		if !c.Owner {
			l.release(c.Address)
			l.log.Info("another node answers for the address now, or none", "address", c.Address)
			l.recount()
			continue
		}
		l.join(c.Address, true)
		claim := &claim{next: now, from: c.From}
		l.claims[c.Address] = claim
		if c.Unsettled && c.From != "" { // soon
			claim.from, l.handoffs.unknown[c.Address] = "", true
			l.recount()
		}
		if !c.Inherited {
			claim.probes, claim.next = l.ahead.take(c.Address, now)
			claim.careful = l.conflicts.needsCare(c.Address)
			l.fresh[c.Address] = claim
			l.soon()
		}
		l.due = append(l.due, c.Address)
		l.election.putOff(c.Address, !c.Adopted)
	}
	if !l.election.again.IsZero() {
		l.soon()
	}
	if len(changes) > 0 {
		l.carryOut(now)
		l.changed()
	}
}

// carryOut begins to answer for some of the addresses that were claimed, and tells other
// nodes what has changed.
func (l *Link) carryOut(now time.Time) {
	n := min(len(l.due), atOnce)
	if n > 0 && now.Before(l.election.ready) && l.election.isPutOff(l.due[0]) {
		n = 0 // another node may have claimed them while this one slept
	}
	for _, a := range l.due[:n] {
		l.election.putOff(a, false)
		if c := l.claims[a]; c != nil && c.announced.IsZero() && !now.Before(c.next) {
			l.attend(now, a, c)
		}
	}
	l.due = l.due[n:]
	l.send(l.election.adverts(true))
	if n > 0 && len(l.due) > 0 {
		l.soon()
	}
}

// release ends the answers for an address.
func (l *Link) release(a netip.Addr) {
	delete(l.claims, a)
	l.kernel.remove(a)
	l.join(a, false)
}

// join takes part in the group of an IPv6 address, or ends that, unless another
// address has the same.
func (l *Link) join(a netip.Addr, in bool) {
	if !a.Is6() {
		return
	}
	for other := range l.claims {
		if other != a && other.Is6() && solicitedNode(other) == solicitedNode(a) {
			return
		}
	}
	if err := l.sockets.join(l.device, a, in, l.kernel != nil); err != nil {
		l.log.Warn("neighbor solicitations may not arrive", "address", a, "error", err)
	}
}

// remind repeats the gratuitous announcements that are due.
func (l *Link) remind(now time.Time) {
	left := mostReminders
	for a, c := range l.claims {
		if left > 0 && c.confirmed && !c.next.IsZero() && !now.Before(c.next) {
			l.attend(now, a, c)
			left--
		}
	}
	if l.conflicts.expire(now) {
		l.stand(now)
	}
}

// attend does what is next for an address.
func (l *Link) attend(now time.Time, a netip.Addr, c *claim) {
	asked := c.probes < probes
	switch {
	case c.careful && c.announced.IsZero() && c.probes > 0:
		l.probe(a)
		c.probes--
		c.next = now.Add(nextQuestion(c.probes))
		return
	case c.probes > 0 && (!asked || !c.announced.IsZero()):
		l.probe(a)
		c.probes--
		c.next = now.Add(probeEvery)
		if !asked {
			c.next = now.Add(firstWait)
		}
		return
	case c.announced.IsZero() && c.probes > 0 && c.waited < mostWaited && (l.sockets.arpIn.IsBehind() || l.sockets.ndpIn.IsBehind()):
		c.waited++
		c.next = now.Add(time.Millisecond)
		return
	case c.announced.IsZero():
		if c.from != "" {
			l.lead(a, c.from) // before anybody is told
		}
		c.announced = now
		l.kernel.add(a, l.election.own[a])
		l.log.Info("this node answers for the address now", "address", a)
		l.changed()
		c.next = now.Add(gratuitousEvery)
		if c.probes > 0 {
			c.next = now.Add(probeEvery)
		} else {
			l.confirm(a, c)
		}
	case !c.confirmed:
		l.confirm(a, c)
		c.next = c.announced.Add(gratuitousEvery)
		return
	default:
		c.next = now.Add(gratuitousEvery)
		if now.Sub(c.announced) > gratuitousFor {
			c.next = time.Time{}
		}
	}
	l.tellAll(a)
}

// confirm ends looking for another machine that has the address.
func (l *Link) confirm(a netip.Addr, c *claim) {
	c.confirmed = true
	delete(l.fresh, a)
	l.election.confirm(a)
	l.changed()
}

// probe asks the link whether a machine has the address.
func (l *Link) probe(a netip.Addr) {
	if a.Is4() {
		l.write(l.sockets.arp, probeARP(a, l.device.HardwareAddr))
		return
	}
	l.write(l.sockets.ndp, probeNS(a, l.device.HardwareAddr))
}

// tellAll tells all machines that this node has the address.
func (l *Link) tellAll(a netip.Addr) {
	l.counts.gratuitous(a)
	if a.Is4() {
		for _, frame := range gratuitousARP(a, l.device.HardwareAddr) {
			l.write(l.sockets.arp, frame)
		}
		return
	}
	l.write(l.sockets.ndp, unsolicitedNA(a, l.device.HardwareAddr))
}
