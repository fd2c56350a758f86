package l2

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/internal/kernel"
)

var errNoProgram = errors.New("no program leads packets at the interface")

// openProgram opens the program that leads connections to the former owners of addresses, and goes on
// with what an earlier process led there.
func (l *Link) openProgram(at *steering.Interfaces) error {
	var err error
	if l.program, err = at.Open(l.device, steering.Handoff); err != nil {
		return err
	}
	led := map[netip.Addr][6]byte{}
	for a, ring := range l.program.Rings() {
		if len(ring.Nodes) > 0 {
			led[a] = [6]byte(ring.Nodes[0])
		}
	}
	l.core.Leads(led)
	return nil
}

// lead has the packets of connections that began at another node led there, but for those
// of this node's own. At a take-over that is done before anybody is told of it.
func (l *Link) lead(a netip.Addr, node string) {
	err := errNoProgram
	if l.program != nil {
		former := steering.Ring{Nodes: []net.HardwareAddr{l.core.Peers().MACOf(node)}}
		if err = l.program.Note(a, steering.FlowsOf(l.own[a])); err == nil {
			err = l.program.Lead(a, former, core.KeepAtMost)
		}
	}
	if err != nil {
		l.core.LeadFailed(a)
		l.log.Warn("connections through the node that announced an address end, since the kernel can't lead them there", "error", err)
		return
	}
	l.log.Info("connections that began at the former node go on there", "address", a, "node", node)
}

func (l *Link) endLead(a netip.Addr, node string) {
	packets, err := l.program.End(a)
	l.log.Info("the former node has no connections left", "address", a, "node", node, "packets", packets)
	if err != nil {
		l.log.Warn("connections may still be led to the former node", "error", err)
	}
}

// closeProgram leaves what is led elsewhere to the next process, or ends it.
func (l *Link) closeProgram(follows bool) error {
	switch {
	case l.program == nil:
		return nil
	case follows:
		l.program.Close()
		return nil
	}
	return l.program.Detach()
}

// toCount lists the addresses of which the link has to know this node's connections.
func (l *Link) toCount() []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.core.ToCount()
	if l.program != nil && l.program.IsCrowded() {
		list = slices.AppendSeq(list, maps.Keys(l.program.Rings()))
	}
	return list
}

// forgetEnded has the program forget the connections that began here and are over.
func (l *Link) forgetEnded(asked map[netip.Addr]bool, found map[netip.Addr][]kernel.Connection) {
	if l.program == nil || !l.program.IsCrowded() {
		return
	}
	there := map[netip.Addr]map[steering.Flow]bool{}
	for a := range l.program.Rings() {
		if !asked[a] {
			return
		}
		there[a] = steering.FlowsOf(found[a])
	}
	if err := l.program.Forget(there); err != nil {
		l.log.Warn("connections that are over are not forgotten", "error", err)
	}
}

// isUrgent reports whether something waits for connections to be counted.
func (l *Link) isUrgent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.IsUrgent()
}

// counted is told which connections this node has of some addresses.
func (l *Link) counted(asked map[netip.Addr]bool, found map[netip.Addr][]kernel.Connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetEnded(asked, found)
	n := map[netip.Addr]int{}
	for a := range asked {
		l.own[a], n[a] = found[a], len(found[a])
	}
	l.carryOut(l.core.Count(time.Now(), asked, n))
	maps.DeleteFunc(l.own, func(a netip.Addr, _ []kernel.Connection) bool { return !l.core.IsCounted(a) })
}

// keep is told of addresses that this node doesn't own and has connections of.
func (l *Link) keep(addresses []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carryOut(l.core.Keep(addresses))
}

// isIdle reports whether nothing is left to do on the link for addresses that this node may
// not own.
func (l *Link) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.IsIdle()
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
	return l.core.Unsettled()
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
