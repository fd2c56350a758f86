package l2

import (
	"maps"
	"net"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/announce/l2/handoff"
)

// keepAtMost is how long a node that has given an address up on purpose goes on with its
// connections, to which the new owner leads their packets.
const keepAtMost = time.Hour

// handoffs are the addresses of a link whose former owner goes on with its connections.
// They are used under the link's lock.
type handoffs struct {
	program *handoff.Handoff // nil before the first one
	from    map[netip.Addr]former
	since   map[netip.Addr]time.Time // of those that this node gave up
	failed  bool                     // the kernel can't
}

// former is a node that has given an address up, since when.
type former struct {
	node  string
	began time.Time
}

// beginHandoff has the packets of connections that began at the former owner led to it,
// before anybody is told that the address has moved.
func (l *Link) beginHandoff(now time.Time, c change) {
	if c.From == "" || l.handoffs.failed {
		return
	}
	to := l.macOf(c.From)
	if to == nil {
		return
	}
	if err := l.handoffs.lead(l.device, c.Address, to); err != nil {
		l.handoffs.failed = true
		l.log.Warn("connections through the node that announced an address end, since the kernel can't lead them there", "err", err)
		return
	}
	l.handoffs.from[c.Address] = former{c.From, now}
	l.log.Info("connections that began at the former node go on there", "address", c.Address, "node", c.From)
}

// macOf finds a node of the link.
func (l *Link) macOf(node string) net.HardwareAddr {
	for mac, name := range l.members {
		if name == node {
			to, _ := net.ParseMAC(mac) // written by String
			return to
		}
	}
	return nil
}

func (h *handoffs) lead(device *net.Interface, a netip.Addr, to net.HardwareAddr) (err error) {
	if h.program == nil {
		if h.program, err = handoff.Open(device); err != nil {
			return err
		}
		h.from = map[netip.Addr]former{}
	}
	return h.program.Lead(a, to, keepAtMost)
}

// endHandoffs ends those whose former owner has no connections left, or is no more.
func (l *Link) endHandoffs(now time.Time) {
	for a, f := range l.handoffs.from {
		if l.election.isKept(now, f.node, a) && now.Sub(f.began) < keepAtMost {
			continue
		}
		delete(l.handoffs.from, a)
		packets, err := l.handoffs.program.End(a)
		l.log.Info("the former node has no connections left", "address", a, "node", f.node, "packets", packets)
		if err != nil {
			l.log.Warn("connections may still be led to the former node", "err", err)
		}
	}
}

func (h *handoffs) close() error {
	if h.program == nil {
		return nil
	}
	return h.program.Close()
}

// kept lists the addresses that this node gave up and goes on with.
func (l *Link) kept() []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.election.kept()
}

// letGo is told how many connections are left of addresses that this node gave up.
func (l *Link) letGo(connections map[netip.Addr]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.handoffs.since == nil {
		l.handoffs.since = map[netip.Addr]time.Time{}
	}
	for _, a := range l.election.kept() {
		if l.handoffs.since[a].IsZero() {
			l.handoffs.since[a] = now
		}
		if connections[a] == 0 || now.Sub(l.handoffs.since[a]) > keepAtMost {
			l.election.letGo(a)
			delete(l.handoffs.since, a)
		}
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

// Kept is how many connections this node has of addresses that it gave up on purpose, and to
// which their new owners lead the packets.
func (a *Announcer) Kept() map[netip.Addr]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.left)
}

// lookAtKept has the connections counted of addresses that were given up.
func (a *Announcer) lookAtKept() {
	links, wanted := a.keptByLinks()
	left := map[netip.Addr]int{}
	if len(links) > 0 {
		counted, err := a.connections(wanted)
		if err != nil {
			a.log.Warn("connections of addresses that this node has given up can't be counted", "err", err)
			return
		}
		for address := range wanted {
			if n := counted[address]; n > 0 {
				left[address] = n
			}
		}
	}
	a.mu.Lock()
	same := maps.Equal(left, a.left)
	a.left = left
	a.mu.Unlock()
	for _, l := range links {
		l.letGo(left)
	}
	if !same {
		a.changed()
	}
	if len(links) > 0 {
		a.poke() // links may be idle
	}
}

// keptByLinks lists the addresses that this node gave up and goes on with, and the links
// that they were announced on.
func (a *Announcer) keptByLinks() (links []*running, addresses map[netip.Addr]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addresses = map[netip.Addr]bool{}
	for _, l := range a.links {
		kept := l.kept()
		if len(kept) == 0 {
			continue
		}
		links = append(links, l)
		for _, address := range kept {
			addresses[address] = true
		}
	}
	return links, addresses
}
