package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// deafLink is a link on which one node has taken an address over from another one, which it
// doesn't hear any more.
func deafLink(t *testing.T) (l *segment, owner, other string) {
	l = newSegment(t, "a", "b")
	for _, n := range l.nodes {
		n.kernelAnswers = true
	}
	l.candidates(vip)
	l.pass(10)
	other = l.owner(vip)
	owner = map[string]string{"a": "b", "b": "a"}[other]
	l.nodes[other].confirm(vip)
	l.cut[[2]string{other, owner}] = true
	l.pass(6)
	if got := l.owner(vip); got != owner {
		t.Fatalf("%s owns the address, want %s, which doesn't hear the other one", got, owner)
	}
	l.nodes[owner].confirm(vip)
	l.pass(1)
	return l, owner, other
}

// TestLateAndDeaf: an owner whose advert is late is not taken for lost by a node that it
// doesn't hear: questions don't arrive.
func TestLateAndDeaf(t *testing.T) {
	l, owner, other := deafLink(t)
	for late := time.Duration(0); late < 15*watchEvery; late += watchEvery {
		l.now = l.now.Add(watchEvery)
		if names, lost := l.nodes[other].overdue(l.now); len(names) > 0 || lost {
			t.Fatalf("%s late: asks %v, lost %v", late, names, lost)
		}
		l.nodes[other].tick(l.now)
	}
	if got := l.owner(vip); got != owner {
		t.Errorf("%s owns the address", got)
	}
	delete(l.cut, [2]string{other, owner})
	l.pass(5)
	l.asleep[owner] = true
	asked := 0
	for range 12 {
		l.now = l.now.Add(watchEvery)
		names, _ := l.nodes[other].overdue(l.now)
		asked += len(names)
	}
	if asked < lostAsks {
		t.Errorf("asked %d times since all is well again", asked)
	}
}

// TestClaimThatIsNotHeard: a node that took a silent owner for dead gives the address up when
// that one is heard again, and doesn't hear the claim.
func TestClaimThatIsNotHeard(t *testing.T) {
	l, owner, other := deafLink(t)
	l.asleep[owner] = true
	for range 5 {
		l.now = l.now.Add(Interval)
		l.nodes[other].tick(l.now)
		l.ask(other)
	}
	if got := l.owner(vip); got != other {
		t.Fatalf("%s owns the address, want %s, since the owner is silent", got, other)
	}
	l.asleep[owner] = false
	l.nodes[owner].held = func(netip.Addr) bool { return true } // its kernel went on to answer
	l.pass(1)
	if got := l.owner(vip); got != owner {
		t.Errorf("%s owns the address, want %s", got, owner)
	}
	l.pass(20)
	l.owner(vip)
	delete(l.cut, [2]string{other, owner})
	l.pass(20)
	if got := l.owner(vip); got != owner {
		t.Errorf("%s owns the address when all is well again", got)
	}
}

// TestNobodyIsDeafAtFirst: nodes that have just met, or hear each other again, don't give way
// because they weren't named yet.
func TestNobodyIsDeafAtFirst(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidates(vip)
	l.cut[[2]string{"a", "b"}], l.cut[[2]string{"b", "a"}] = true, true
	l.pass(20)
	if got := l.owners(vip); len(got) != 2 {
		t.Fatalf("%v own the address while the link is cut", got)
	}
	clear(l.cut)
	for range 10 {
		l.pass(1)
		if len(l.owners(vip)) == 0 {
			t.Fatal("both gave way")
		}
	}
	l.owner(vip)
}

// TestManyNodesAreNamed: where one advert has no room for all that a node hears, they come by
// in turn, and none of them is taken for unheard.
func TestManyNodesAreNamed(t *testing.T) {
	names := []string{strings.Repeat("n", link.MaxName)}
	for i := range 39 {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	l := newSegment(t, names...)
	var all []netip.Addr
	for a := vip6; len(all) < maxEntries; a = a.Next() {
		all = append(all, a)
	}
	l.candidate(names[0], 0, all...)
	l.pass(20)
	first := l.nodes[names[0]].adverts(false)[0]
	if b, err := first.marshal(l.keys); err != nil || len(b) > link.MaxLength || len(first.Hears.Names) == 0 {
		t.Errorf("%d bytes, %d nodes named (%v)", len(b), len(first.Hears.Names), err)
	}
	for range 20 {
		l.pass(1)
		for _, name := range names[1:] {
			if l.nodes[name].members[names[0]].deaf {
				t.Fatalf("%s is taken for unheard", name)
			}
		}
	}
	l.cut[[2]string{names[1], names[0]}] = true
	l.pass(20)
	for _, name := range names[1:] {
		if got := l.nodes[name].members[names[0]].deaf; got != (name == names[1]) {
			t.Fatalf("%s is taken for unheard: %v", name, got)
		}
	}
}

// TestDeletedService: when the data planes of all nodes lose an address, one after the other,
// nobody claims it in between. Where the others go on to have it, one takes it over, and
// somebody owns it all the time.
func TestDeletedService(t *testing.T) {
	for _, deleted := range []bool{true, false} {
		l := newSegment(t, "a", "b", "c")
		for _, n := range l.nodes {
			n.anywhere = map[netip.Addr]bool{vip: false}
		}
		l.candidates(vip)
		l.pass(10)
		owner := l.owner(vip)
		l.nodes[owner].confirm(vip)
		l.pass(1)
		gone := func(name string) {
			l.nodes[name].anywhere = map[netip.Addr]bool{}
			l.candidate(name, 0)
			l.send(name, l.nodes[name].adverts(true))
		}
		gone(owner)
		for step := range 20 {
			l.now = l.now.Add(watchEvery)
			for _, name := range l.names() {
				if deleted && step == 5 && name != owner {
					gone(name)
				}
				l.nodes[name].tick(l.now)
				l.send(name, l.nodes[name].adverts(false))
			}
			owners := l.owners(vip)
			if !deleted && len(owners) == 0 || deleted && len(owners) > 0 && !slices.Equal(owners, []string{owner}) {
				t.Fatalf("deleted %v, step %d: %v own the address", deleted, step, owners)
			}
		}
		if owners := l.owners(vip); deleted != (len(owners) == 0) {
			t.Errorf("deleted %v: in the end %v own the address", deleted, owners)
		} else if !deleted && owners[0] == owner {
			t.Error("nothing moved")
		}
	}
}
