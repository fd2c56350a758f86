package l2

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/announce/l2/handoff"
	"github.com/fairway-net/fairway/announce/lead"
	"github.com/fairway-net/fairway/internal/kernel"
)

// keepAtMost is how long a node that has given an address up goes on with its connections,
// to which the new owner leads their packets.
const keepAtMost = time.Hour

// Connections lists those that this node has to addresses.
type Connections func(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error)

// handoffs are the addresses of a link whose former owner goes on with its connections, and
// those that this node is the former owner of. They are used under the link's lock.
type handoffs struct {
	program *handoff.Handoff // nil before the first one
	from    map[netip.Addr]string
	failed  bool // the kernel can't
	began   time.Time
	// unknown are addresses whose connections are to be led elsewhere, once it is known which
	// of them are this node's own.
	unknown map[netip.Addr]bool
	// Of those that this node gave up: since when, and the connections that it has.
	since map[netip.Addr]time.Time
	own   map[netip.Addr][]kernel.Connection
}

// openHandoffs goes on with what an earlier process led elsewhere.
func (l *Link) openHandoffs(now time.Time) error {
	l.handoffs = handoffs{
		from: map[netip.Addr]string{}, unknown: map[netip.Addr]bool{}, began: now,
		since: map[netip.Addr]time.Time{}, own: map[netip.Addr][]kernel.Connection{},
	}
	if !handoff.IsThere(l.device) {
		return nil
	}
	var err error
	l.handoffs.program, err = handoff.Open(l.device)
	return err
}

// lead has the packets of connections that began at another node led there, but for those
// of this node's own. At a take-over that is done before anybody is told of it.
func (l *Link) lead(a netip.Addr, node string) {
	to := l.peers.MACOf(node)
	if to == nil || l.handoffs.failed {
		return
	}
	var own []lead.Flow
	for _, c := range l.handoffs.own[a] {
		own = append(own, lead.Flow{Client: c.Client, Port: c.Port, Proto: uint8(c.Proto)})
	}
	if err := l.handoffs.lead(l.device, a, to, own); err != nil {
		l.handoffs.failed = true
		l.log.Warn("connections through the node that announced an address end, since the kernel can't lead them there", "error", err)
		return
	}
	l.handoffs.from[a] = node
	l.log.Info("connections that began at the former node go on there", "address", a, "node", node)
}

func (h *handoffs) lead(device *net.Interface, a netip.Addr, to net.HardwareAddr, own []lead.Flow) (err error) {
	if h.program == nil {
		if h.program, err = handoff.Open(device); err != nil {
			return err
		}
	}
	return h.program.Lead(a, to, own, keepAtMost)
}

// leads reports whether connections of an address are led to a MAC already.
func (h *handoffs) leads(a netip.Addr, to net.HardwareAddr) bool {
	return h.program != nil && to != nil && slices.Equal(h.program.Leads()[a], to)
}

// followFormers leads connections to the nodes that keep them, and ends that where no node
// does any more.
func (l *Link) followFormers(now time.Time) {
	formers := l.election.formers(now)
	h := &l.handoffs
	for a, node := range h.from {
		if formers[a] == "" {
			l.endHandoff(a, node)
		}
	}
	for a, node := range formers {
		switch {
		case h.from[a] == node || h.failed:
		case l.claims[a] != nil && l.claims[a].announced.IsZero(): // then
		case h.leads(a, l.peers.MACOf(node)): // an earlier process began it
			h.from[a] = node
		case h.from[a] != "" || h.own[a] != nil:
			l.lead(a, node)
		default:
			h.unknown[a] = true
			l.recount()
		}
	}
	if h.program == nil {
		return
	}
	for a, to := range maps.Clone(h.program.Leads()) { // also of an earlier process
		node := l.peers.NodeOf(to)
		if h.from[a] == "" && (now.Sub(h.began) >= 2*lostAfter || l.election.isLost(node)) {
			l.endHandoff(a, node)
		}
	}
}

func (l *Link) endHandoff(a netip.Addr, node string) {
	delete(l.handoffs.from, a)
	packets, err := l.handoffs.program.End(a)
	l.log.Info("the former node has no connections left", "address", a, "node", node, "packets", packets)
	if err != nil {
		l.log.Warn("connections may still be led to the former node", "error", err)
	}
}

// close leaves what is led elsewhere to the next process, or ends it.
func (h *handoffs) close(follows bool) error {
	switch {
	case h.program == nil:
		return nil
	case follows:
		return h.program.Close()
	}
	return h.program.Detach()
}

// toCount lists the addresses of which the link has to know this node's connections.
func (l *Link) toCount() []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.AppendSeq(l.election.kept(), maps.Keys(l.handoffs.unknown))
	if p := l.handoffs.program; p != nil && p.IsCrowded() {
		list = slices.AppendSeq(list, maps.Keys(p.Leads()))
	}
	return list
}

// forgetEnded has the program forget the connections that began here and are over.
func (l *Link) forgetEnded(asked map[netip.Addr]bool, found map[netip.Addr][]kernel.Connection) {
	p := l.handoffs.program
	if p == nil || !p.IsCrowded() {
		return
	}
	const justBegun = 5 * time.Second // they may not be among what was found
	for a := range p.Leads() {
		if !asked[a] {
			return
		}
	}
	for a := range p.Leads() {
		there := map[lead.Flow]bool{}
		for _, c := range found[a] {
			there[lead.Flow{Client: c.Client, Port: c.Port, Proto: uint8(c.Proto)}] = true
		}
		if err := p.Forget(a, there, justBegun); err != nil {
			l.log.Warn("connections that are over are not forgotten", "error", err)
		}
	}
}

// isUrgent reports whether something waits for connections to be counted.
func (l *Link) isUrgent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := slices.ContainsFunc(l.election.kept(), func(a netip.Addr) bool {
		_, known := l.handoffs.own[a]
		return !known // they are told from others' when the address comes back
	})
	return counts || len(l.handoffs.unknown) > 0 || l.election.unsettled() > 0
}

// counted is told which connections this node has of some addresses.
func (l *Link) counted(asked map[netip.Addr]bool, found map[netip.Addr][]kernel.Connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	h := &l.handoffs
	l.forgetEnded(asked, found)
	for _, a := range l.election.kept() {
		if !asked[a] {
			continue // it has been given up since
		}
		if h.since[a].IsZero() {
			h.since[a] = now
		}
		if (len(found[a]) > 0 || h.from[a] != "") && now.Sub(h.since[a]) < keepAtMost {
			h.own[a] = found[a]
			l.election.keep(a)
			continue
		}
		l.election.letGo(a)
		delete(h.since, a)
		delete(h.own, a)
	}
	formers := l.election.formers(now)
	for a := range h.unknown {
		if !asked[a] {
			continue
		}
		delete(h.unknown, a)
		if node := formers[a]; node != "" {
			h.own[a] = found[a]
			l.lead(a, node)
			delete(h.own, a)
		}
	}
	l.send(l.election.adverts(true))
}

// keep is told of addresses that this node doesn't own and has connections of.
func (l *Link) keep(addresses []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range addresses {
		l.election.keep(a)
	}
	l.send(l.election.adverts(true))
}

// isIdle reports whether nothing is left to do on the link for addresses that this node may
// not own.
func (l *Link) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.claims) == 0 && len(l.election.kept()) == 0
}

// Kept is how many connections this node has of addresses that it gave up, and to which
// their new owners lead the packets. Unknown counts the addresses of which that is to be
// found out yet.
func (a *Announcer) Kept() (connections map[netip.Addr]int, unknown int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.links {
		unknown += l.unsettled()
	}
	return maps.Clone(a.left), unknown
}

func (l *Link) unsettled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.election.unsettled()
}

// lookAtKept finds out which connections this node has of addresses that were given up, of
// those that are led elsewhere, and once, when it begins, of all: an earlier process may
// have given some up.
func (a *Announcer) lookAtKept() {
	links, wanted, first := a.addressesToCount()
	if len(wanted) == 0 && len(a.left) == 0 || a.mayWait(links, first) {
		return
	}
	defer func(began time.Time) { a.counted, a.took = time.Now(), time.Since(began) }(time.Now())
	var found map[netip.Addr][]kernel.Connection
	if len(wanted) > 0 {
		var err error
		if found, err = a.connections(wanted); err != nil {
			if err.Error() != a.uncounted {
				a.log.Warn("connections of addresses that this node has given up can't be counted", "error", err)
			}
			a.uncounted = err.Error()
			return
		}
	}
	a.uncounted = ""
	for _, l := range links {
		l.counted(wanted, found)
	}
	if first {
		a.looked = true
		a.revive(found)
	}
	left := map[netip.Addr]int{}
	for _, l := range links {
		for _, address := range l.toCount() {
			if n := len(found[address]); n > 0 {
				left[address] = n
			}
		}
	}
	a.mu.Lock()
	a.left = left
	a.mu.Unlock()
	a.changed()
	a.poke() // links may be idle
}

// countShare is how much longer nothing is counted than counting took: with very many connections
// it takes its time, and nothing may be over so soon.
const countShare = 20

// mayWait reports whether connections were counted a short time ago, and nothing waits for more.
func (a *Announcer) mayWait(links []*running, first bool) bool {
	if first || time.Since(a.counted) >= countShare*a.took {
		return false
	}
	return !slices.ContainsFunc(links, func(l *running) bool { return l.isUrgent() })
}

// addressesToCount lists the addresses whose connections are to be counted, and the links
// that they were announced on.
func (a *Announcer) addressesToCount() (links []*running, addresses map[netip.Addr]bool, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addresses = map[netip.Addr]bool{}
	for _, l := range a.links {
		links = append(links, l)
		for _, address := range l.toCount() {
			addresses[address] = true
		}
	}
	if a.wanted == nil || a.looked {
		return links, addresses, false
	}
	for address, anywhere := range a.served {
		if !anywhere {
			addresses[address] = true
		}
	}
	return links, addresses, true
}

// revive has links keep the connections that an earlier process left, of addresses that
// this node doesn't own.
func (a *Announcer) revive(found map[netip.Addr][]kernel.Connection) {
	places := map[netip.Addr]Placement{}
	a.mu.Lock()
	for address, list := range found {
		if len(list) > 0 {
			places[address] = a.wanted[address]
		}
	}
	a.revived = places
	a.mu.Unlock()
	if err := a.reconcile(); err != nil {
		a.log.Warn("announcing on layer 2", "error", err)
	}
}
