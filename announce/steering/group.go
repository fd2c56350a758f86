package steering

import (
	"bytes"
	"cmp"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// lostAfter this long without a word of a node its connections count as lost, unless its
	// kernel says it sooner: longer than an agent takes to start again.
	lostAfter = 5 * time.Second
	// settles is how long after a change was prepared connections may still begin at nodes
	// that the change concerns: routers take a moment.
	settles = 3 * time.Second
	// repeats is how often it is told that a node is prepared.
	repeats = 3
)

// group is what the nodes of a link said, and what this node has to say. It is pure:
// messages and times go in, messages and rings come out.
type group struct {
	node        string
	mac         net.HardwareAddr
	incarnation uint64
	sequence    uint64
	ask         uint32
	asked       time.Time // when the last question began
	leaving     bool
	members     map[string]*member
	own         map[netip.Addr]*share
}

// member is another node of the link.
type member struct {
	mac         net.HardwareAddr
	incarnation uint64
	heard       time.Time
	leaving     bool
	watched
	asks     map[netip.Addr]uint32 // the last question of it that was taken up
	prepared map[netip.Addr]time.Time
	holds    map[netip.Addr]time.Time // when it last said so
}

// share is what this node has to do with an address.
type share struct {
	asks     bool
	prepared time.Time // zero if it isn't
	holds    bool
	tell     int // messages that still have to name it
}

func newGroup(node string, incarnation uint64, mac net.HardwareAddr) *group {
	return &group{node: node, mac: mac, incarnation: incarnation, members: map[string]*member{}, own: map[netip.Addr]*share{}}
}

// receive takes in a message, which no older one follows (link.Peers), and names the addresses that this node is to prepare for a
// change. New says that the node wasn't known.
func (g *group) receive(now time.Time, mac net.HardwareAddr, m *message) (due []netip.Addr, isNew bool) {
	known := g.members[m.Node]
	if known == nil || m.Incarnation != known.incarnation || !bytes.Equal(known.mac, mac) {
		holds, kernel := map[netip.Addr]time.Time{}, watched{}
		if known != nil {
			holds, kernel = known.holds, known.watched // a process that has just begun may not know yet
		}
		known = &member{mac: bytes.Clone(mac), watched: kernel, incarnation: m.Incarnation, asks: map[netip.Addr]uint32{}, prepared: map[netip.Addr]time.Time{}, holds: holds}
		g.members[m.Node], isNew = known, true
	}
	known.heard, known.leaving = now, m.Leaving
	known.hear()
	for _, e := range m.Entries {
		if e.Prepared {
			known.prepared[e.Address] = now
		}
		if e.Holds {
			known.holds[e.Address] = now
		} else if e.Prepared {
			delete(known.holds, e.Address)
		}
		s := g.own[e.Address]
		switch {
		case e.Asks && known.asks[e.Address] != m.Ask:
			known.asks[e.Address] = m.Ask
			due = append(due, e.Address)
		case e.Holds && (s == nil || s.prepared.IsZero()):
			due = append(due, e.Address) // the question wasn't heard
		}
	}
	return due, isNew
}

// begin asks others to prepare for a change of addresses, which this node does as well.
func (g *group) begin(now time.Time, addresses []netip.Addr, leaving bool) {
	g.ask++
	g.asked, g.leaving = now, leaving
	for _, a := range addresses {
		g.share(a).asks = true
	}
}

// end ends asking.
func (g *group) end() {
	for _, s := range g.own {
		s.asks = false
	}
}

// unprepared counts, over this node and all others, the addresses that they are not prepared
// for yet, of what this node asked.
func (g *group) unprepared(now time.Time) (n int) {
	for a, s := range g.own {
		if !s.asks {
			continue
		}
		if s.prepared.Before(g.asked) {
			n++
		}
		for _, m := range g.members {
			if now.Sub(m.heard) <= lostAfter && m.prepared[a].Before(g.asked) {
				n++
			}
		}
	}
	return n
}

func (g *group) share(a netip.Addr) *share {
	s := g.own[a]
	if s == nil {
		s = &share{}
		g.own[a] = s
	}
	return s
}

// prepared notes that this node's connections of an address are known.
func (g *group) prepared(now time.Time, a netip.Addr, holds bool) {
	s := g.share(a)
	s.prepared, s.holds, s.tell = now, holds, repeats
}

// holds notes whether connections of before the change are left.
func (g *group) holds(a netip.Addr, some bool) {
	if s := g.own[a]; s != nil && s.holds != some {
		s.holds, s.tell = some, repeats
	}
}

// ringOf is the ring of an address: the others that have connections of it. Those that leave
// come first, since most strays are theirs.
func (g *group) ringOf(now time.Time, a netip.Addr) Ring {
	type at struct {
		leaving bool
		mac     net.HardwareAddr
	}
	before := func(x, y at) int {
		if x.leaving != y.leaving {
			return cmp.Compare(btoi(y.leaving), btoi(x.leaving))
		}
		return bytes.Compare(x.mac, y.mac)
	}
	var others []at
	for _, m := range g.members {
		if said, ok := m.holds[a]; ok && now.Sub(said) <= lostAfter && !m.gone {
			others = append(others, at{m.leaving, m.mac})
		}
	}
	slices.SortFunc(others, before)
	var r Ring
	self := at{g.leaving, g.mac}
	for _, o := range others {
		if before(o, self) < 0 {
			r.After++
		}
		r.Nodes = append(r.Nodes, o.mac)
	}
	return r
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// expire forgets nodes that are silent, and addresses whose change is over, which it names.
func (g *group) expire(now time.Time) (over []netip.Addr) {
	for name, m := range g.members {
		if now.Sub(m.heard) > lostAfter {
			delete(g.members, name)
		}
	}
	for a, s := range g.own {
		if !s.asks && !s.holds && now.Sub(s.prepared) > settles && len(g.ringOf(now, a).Nodes) == 0 {
			delete(g.own, a)
			if !s.prepared.IsZero() {
				over = append(over, a)
			}
		}
	}
	return over
}

// messages are what to say now. Urgent ones are for what changed only; the others say at
// least that this node is there.
func (g *group) messages(urgent bool) []*message {
	var entries []entry
	for a, s := range g.own {
		if s.tell == 0 && (urgent || !s.asks && !s.holds) {
			continue
		}
		s.tell = max(0, s.tell-1)
		entries = append(entries, entry{Address: a, Asks: s.asks, Prepared: !s.prepared.IsZero(), Holds: s.holds})
	}
	if urgent && len(entries) == 0 {
		return nil
	}
	var list []*message
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), maxEntries)
		g.sequence++
		list = append(list, &message{Node: g.node, Incarnation: g.incarnation, Sequence: g.sequence, Ask: g.ask, Leaving: g.leaving, Entries: entries[:n]})
		entries = entries[n:]
	}
	return list
}
