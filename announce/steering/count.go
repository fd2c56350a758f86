package steering

import (
	"maps"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
)

// keepAtMost is how long packets are led to other nodes after a change.
const keepAtMost = time.Hour

// mostFlows is how many connections a program can tell from others'. A node that has more
// leads nothing elsewhere: it would lead its own. Others lead packets to it all the same.
const mostFlows = 100_000

// past are connections to an address of before a change.
type past struct {
	since time.Time // the change was prepared
	flows map[Flow]bool
	blind bool // they are too many
}

// prepare notes the connections that this node has of addresses: first those that begin from
// now on, and then those that are there. Only then others' packets can be told from its own.
func (l *uplink) prepare(due []netip.Addr) error {
	if len(due) == 0 {
		return nil
	}
	wanted := map[netip.Addr]bool{}
	again := map[netip.Addr]bool{} // there was a change before
	for _, a := range due {
		wanted[a] = true
		var ring Ring
		ring, again[a] = l.program.Ring(a)
		if err := l.program.Lead(a, ring, keepAtMost); err != nil {
			return err
		}
	}
	found, err := l.connections(wanted)
	if err != nil {
		return err
	}
	blind := l.areTooMany(found)
	for _, a := range due {
		p := &past{time.Now(), FlowsOf(found[a]), blind}
		if err := l.note(a, p, again[a]); err != nil {
			return err
		}
		l.past[a] = p
		l.mu.Lock()
		l.group.prepared(p.since, a, len(p.flows) > 0)
		l.mu.Unlock()
	}
	return nil
}

// note tells the program of connections that this node has. Again says that there was a
// change before, of which it knows others.
func (l *uplink) note(a netip.Addr, p *past, again bool) error {
	if p.blind { // it leads nothing, and answers others that lead packets here
		return l.program.Watch(a, keepAtMost)
	}
	if err := l.program.Note(a, p.flows); err != nil || !again {
		return err
	}
	return l.program.Forget(map[netip.Addr]map[Flow]bool{a: p.flows})
}

// areTooMany reports whether connections are more than the program can tell from others'.
func (l *uplink) areTooMany(found map[netip.Addr][]kernel.Connection) bool {
	n := 0
	for a, p := range l.past {
		if _, again := found[a]; !again {
			n += len(p.flows)
		}
	}
	for _, list := range found {
		n += len(list)
	}
	if n > mostFlows {
		l.log.Warn("packets of other nodes' connections that come in here are reset: this node has too many connections to tell them apart", "connections", n, "limit", mostFlows)
	}
	return n > mostFlows
}

// recount finds out which connections of before a change are left. At a node that leaves,
// and before routers know, these are all.
func (l *uplink) recount(now time.Time) error {
	wanted := map[netip.Addr]bool{}
	for a, p := range l.past {
		if len(p.flows) > 0 || now.Sub(p.since) <= settles {
			wanted[a] = true
		}
	}
	crowded := l.program.IsCrowded()
	listed := maps.Clone(wanted)
	if crowded {
		for a := range l.program.Rings() {
			listed[a] = true
		}
	}
	if len(listed) == 0 {
		return nil
	}
	found, err := l.connections(listed)
	if err != nil {
		return err
	}
	if crowded {
		there := map[netip.Addr]map[Flow]bool{}
		for a := range listed {
			there[a] = FlowsOf(found[a])
		}
		if err := l.program.Forget(there); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range wanted {
		p, is := l.past[a], FlowsOf(found[a])
		if l.group.leaving || now.Sub(p.since) <= settles {
			p.flows = is
		} else {
			maps.DeleteFunc(p.flows, func(f Flow, _ bool) bool { return !is[f] })
		}
		if now.Sub(p.since) > keepAtMost {
			clear(p.flows)
		}
		l.group.holds(a, len(p.flows) > 0)
	}
	return nil
}
