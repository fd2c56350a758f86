package core

import (
	"net/netip"
	"testing"
)

// busy is a link whose nodes read adverts when they get to it. What has no room until then is
// lost, as with a socket.
type busy struct {
	*segment
	room  int // adverts that wait for a node at most
	wait  map[string][]*Advert
	lost  int
	moves int // claims
}

func newBusy(t *testing.T, room int, names ...string) *busy {
	return &busy{segment: newSegment(t, names...), room: room, wait: map[string][]*Advert{}}
}

// pass lets time go by, an Interval at a time.
func (b *busy) pass(intervals int) {
	b.Helper()
	for range intervals {
		b.now = b.now.Add(Interval)
		for _, name := range b.names() {
			b.read(name)
			b.changed(name, b.nodes[name].tick(b.now))
			b.send(name, b.nodes[name].adverts(false))
		}
	}
}

// read has a node take in what waits for it.
func (b *busy) read(name string) {
	for _, a := range b.wait[name] {
		b.changed(name, b.nodes[name].receive(b.now, a))
	}
	b.wait[name] = nil
}

// changed has a node do what it does after changes.
func (b *busy) changed(name string, changes []change) {
	for _, c := range changes {
		if c.Owner {
			b.moves++
			b.nodes[name].confirm(c.Address)
		}
	}
	if len(changes) > 0 {
		b.send(name, b.nodes[name].adverts(true))
	}
}

func (b *busy) send(from string, adverts []*Advert) {
	for _, a := range adverts {
		for _, to := range b.names() {
			switch {
			case to == from:
			case len(b.wait[to]) >= b.room:
				b.lost++
			default:
				b.wait[to] = append(b.wait[to], a)
			}
		}
	}
}

// TestManyOnBusyNodes: thousands of addresses move once when a node is drained, although the
// nodes have no room for all that the others say at once.
func TestManyOnBusyNodes(t *testing.T) {
	b := newBusy(t, 30, "a", "b", "c")
	var all []netip.Addr
	for i := range 3000 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	b.candidates(all...)
	b.pass(100)
	if b.lost == 0 || b.moves > 2*len(all) {
		t.Errorf("%d claims of %d addresses, %d adverts lost", b.moves, len(all), b.lost)
	}
	b.moves = 0
	b.pass(100)
	if b.moves > 0 {
		t.Errorf("%d addresses moved, and nothing had happened", b.moves)
	}
	left := len(b.nodes["a"].owned())
	b.lost = 0
	b.changed("a", b.nodes["a"].setCandidates(b.now, nil))
	b.pass(100)
	for _, a := range all {
		b.owner(a)
	}
	if b.lost == 0 || b.moves != left {
		t.Errorf("%d claims of the %d addresses that a drained node had, %d adverts lost", b.moves, left, b.lost)
	}
}

// TestOneClaimEach: nodes that have new addresses in force at the same time claim each once.
func TestOneClaimEach(t *testing.T) {
	b := newBusy(t, 1000, "a", "b", "c")
	b.pass(10)
	set := map[netip.Addr]int32{}
	for i := range 300 {
		set[netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})] = 0
	}
	for _, name := range []string{"a", "b"} { // c is better for some of them, and may not announce them
		b.changed(name, b.nodes[name].setCandidates(b.now, set))
		b.send(name, b.nodes[name].adverts(true))
	}
	b.now = b.now.Add(holdUnheard)
	for _, name := range b.names() {
		b.read(name)
	}
	for range 2 { // what one says, the other hears
		for _, name := range b.names() {
			b.changed(name, b.nodes[name].waited(b.now))
			b.read(name)
		}
		b.now = b.now.Add(holdUnheard)
	}
	if b.moves != len(set) {
		t.Errorf("%d claims of %d addresses", b.moves, len(set))
	}
	for a := range set {
		b.owner(a)
	}
}

// TestGoneWhileNew: nobody takes over a new address whose Service is deleted before its owner is
// sure that no other machine has it.
func TestGoneWhileNew(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.pass(10)
	l.candidates(vip)
	l.pass(2)
	owner := l.owner(vip)
	other := map[string]string{"a": "b", "b": "a"}[owner]
	l.nodes[owner].anywhere = map[netip.Addr]bool{} // the data plane has it no more
	l.nodes[owner].setCandidates(l.now, nil)
	l.send(owner, l.nodes[owner].adverts(true))
	l.now = l.now.Add(holdNew)
	l.nodes[other].waited(l.now)
	if owned := l.nodes[other].owned(); len(owned) > 0 {
		t.Errorf("the other node claims %v", owned)
	}
	l.nodes[other].setCandidates(l.now, nil) // its own follows
	l.send(other, l.nodes[other].adverts(true))
	l.pass(5)
	if owners := l.owners(vip); len(owners) > 0 {
		t.Errorf("%v own what is gone", owners)
	}
}
