package core

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// segment is nodes that hear each other's adverts, on a clock of its own.
type segment struct {
	*testing.T
	now    time.Time
	nodes  map[string]*election
	asleep map[string]bool
	cut    map[[2]string]bool // from, to: adverts are lost
	kernel map[string]uint64  // nodes that answer without an agent, in the name of which incarnation
	keys   *link.Keys
}

func newSegment(t *testing.T, names ...string) *segment {
	l := &segment{T: t, now: time.Unix(1e9, 0), nodes: map[string]*election{}, asleep: map[string]bool{}, cut: map[[2]string]bool{}, kernel: map[string]uint64{}, keys: link.NewKeys([]byte("key"))}
	for _, name := range names {
		l.nodes[name] = newElection(name, uint64(l.now.UnixNano()), l.now)
	}
	return l
}

func (l *segment) names() []string {
	var names []string
	for name := range l.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// pass lets time go by, an Interval at a time.
func (l *segment) pass(intervals int) {
	l.Helper()
	for range intervals {
		l.now = l.now.Add(Interval)
		for _, name := range l.names() {
			if !l.asleep[name] {
				l.nodes[name].tick(l.now)
				l.send(name, l.nodes[name].adverts(false))
				l.ask(name)
			}
		}
	}
}

// ask has a node ask the silent ones, often enough for an Interval's time.
func (l *segment) ask(name string) {
	for range leastAsks {
		for _, silent := range l.nodes[name].ask(l.now) {
			if incarnation, ok := l.kernel[silent]; ok {
				l.nodes[name].answer(l.now, silent, incarnation)
			}
		}
	}
}

func (l *segment) send(from string, adverts []*Advert) {
	l.Helper()
	for _, a := range adverts {
		frame, err := a.marshal(l.keys)
		if err != nil {
			l.Fatal(err)
		}
		for _, to := range l.names() {
			if to == from || l.asleep[to] || l.cut[[2]string{from, to}] {
				continue
			}
			read, err := parseAdvert(append(frame, 0, 0), l.keys)
			if err != nil {
				l.Fatal(err)
			}
			l.nodes[to].receive(l.now, read)
		}
	}
}

func (l *segment) owners(a netip.Addr) []string {
	var owners []string
	for _, name := range l.names() {
		if !l.asleep[name] && slices.Contains(l.nodes[name].owned(), a) {
			owners = append(owners, name)
		}
	}
	return owners
}

func (l *segment) owner(a netip.Addr) string {
	l.Helper()
	owners := l.owners(a)
	if len(owners) != 1 {
		l.Fatalf("%v own %s, want one", owners, a)
	}
	return owners[0]
}

func (l *segment) candidates(addresses ...netip.Addr) {
	for _, name := range l.names() {
		l.candidate(name, 0, addresses...)
	}
}

func (l *segment) candidate(name string, weight int32, addresses ...netip.Addr) {
	set := map[netip.Addr]int32{}
	for _, a := range addresses {
		set[a] = weight
	}
	l.nodes[name].setCandidates(l.now, set)
}

var (
	vip  = netip.MustParseAddr("192.0.2.1")
	vip6 = netip.MustParseAddr("2001:db8::1")
)

func TestOneOwner(t *testing.T) {
	l := newSegment(t, "a", "b", "c")
	l.candidates(vip, vip6)
	l.pass(10)
	l.owner(vip)
	l.owner(vip6)
}

func TestAddressesAreSpread(t *testing.T) {
	l := newSegment(t, "a", "b", "c")
	var all []netip.Addr
	for i := range 200 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	l.candidates(all...)
	l.pass(10)
	count := map[string]int{}
	for _, a := range all {
		count[l.owner(a)]++
	}
	for name, n := range count {
		if n < 30 {
			t.Errorf("%s owns %d of 200 addresses: %v", name, n, count)
		}
	}
}

func TestAloneAtOnceAfterListening(t *testing.T) {
	l := newSegment(t, "a")
	l.pass(5)
	l.candidates(vip)
	l.owner(vip)
}

func TestOwnerThatDiesIsReplacedAndDoesNotGetItBack(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidates(vip)
	l.pass(10)
	first := l.owner(vip)
	l.asleep[first] = true
	l.pass(4)
	second := l.owner(vip)
	// It comes back as a new process.
	l.asleep[first] = false
	l.nodes[first] = newElection(first, uint64(l.now.UnixNano()), l.now)
	l.candidate(first, 0, vip)
	l.pass(20)
	if got := l.owner(vip); got != second {
		t.Errorf("%s owns the address after %s came back", got, first)
	}
}

func TestKernelOfSilentOwnerAnswers(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidates(vip)
	l.pass(10)
	first := l.owner(vip)
	second := map[string]string{"a": "b", "b": "a"}[first]
	before := l.nodes[first]
	l.kernel[first] = before.incarnation
	l.asleep[first] = true
	l.pass(100)
	if got := l.owners(vip); len(got) > 0 {
		t.Fatalf("%v took over although the kernel of %s answers", got, first)
	}
	if got := l.nodes[second].ownerOf(vip); got != first {
		t.Errorf("%s takes %q for the owner, want %s", second, got, first)
	}

	// The next process goes on with the claim.
	next := newElection(first, uint64(l.now.UnixNano()), l.now)
	l.nodes[first], l.asleep[first] = next, false
	l.pass(5) // not yet told of its addresses
	next.adopt(l.now, map[netip.Addr]uint32{vip: before.own[vip].Epoch})
	l.candidate(first, 0, vip)
	l.kernel[first] = next.incarnation
	l.pass(10)
	if got := l.owner(vip); got != first {
		t.Errorf("%s owns the address after a restart, want %s", got, first)
	}

	// One that doesn't care for the address any more gives it up.
	l.kernel[first] = next.incarnation
	l.nodes[first] = newElection(first, uint64(l.now.UnixNano()), l.now)
	l.kernel[first] = l.nodes[first].incarnation
	l.pass(10)
	if got := l.owner(vip); got != second {
		t.Errorf("%s owns the address, want %s", got, second)
	}
	l.nodes[first] = newElection(first, uint64(l.now.UnixNano()), l.now)
	l.kernel[second] = l.nodes[second].incarnation
	l.asleep[second] = true
	l.candidate(first, 0, vip)
	l.pass(3)
	delete(l.kernel, second)
	l.pass(10)
	l.owner(vip)
}

// One that slept keeps what the kernel went on to answer for.
func TestSleeperWhoseKernelAnswers(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidates(vip)
	l.pass(10)
	first := l.owner(vip)
	l.kernel[first] = l.nodes[first].incarnation
	l.nodes[first].held = func(netip.Addr) bool { return true }
	l.asleep[first] = true
	l.pass(10)
	l.asleep[first] = false
	l.pass(10)
	if got := l.owner(vip); got != first {
		t.Errorf("%s owns the address, want %s", got, first)
	}
}

func TestOwnerThatSleptGivesWay(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidates(vip)
	l.pass(10)
	first := l.owner(vip)
	l.asleep[first] = true
	l.pass(10)
	second := l.owner(vip)
	l.asleep[first] = false
	changes := l.nodes[first].tick(l.now) // the first thing that it does
	if !slices.Contains(changes, change{Address: vip}) {
		t.Fatalf("after a sleep: %v, want that the address is given up", changes)
	}
	l.pass(10)
	if got := l.owner(vip); got != second {
		t.Errorf("%s owns the address, want %s", got, second)
	}
}

func TestOneWayLoss(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidates(vip)
	l.pass(10)
	owner := l.owner(vip)
	other := map[string]string{"a": "b", "b": "a"}[owner]
	l.cut[[2]string{owner, other}] = true // the other one hears nothing, but is heard
	l.pass(6)
	if got := l.owner(vip); got != other {
		t.Errorf("%s owns the address, want %s, whose claim is the later one", got, other)
	}
	l.pass(50)
	l.owner(vip)
	delete(l.cut, [2]string{owner, other})
	l.pass(10)
	if got := l.owner(vip); got != other {
		t.Errorf("%s owns the address when all is well again, want %s", got, other)
	}
}

func TestPartition(t *testing.T) {
	l := newSegment(t, "a", "b", "c")
	l.candidates(vip)
	l.pass(10)
	owner := l.owner(vip)
	for _, name := range l.names() {
		if name != owner {
			l.cut[[2]string{owner, name}], l.cut[[2]string{name, owner}] = true, true
		}
	}
	l.pass(10)
	if owners := l.owners(vip); len(owners) != 2 {
		t.Fatalf("%v own the address while the link is cut, want one on each side", owners)
	}
	clear(l.cut)
	l.pass(3)
	if got := l.owner(vip); got == owner {
		t.Errorf("%s, whose claim is the older one, still owns the address", got)
	}
}

func TestPlannedMoveHasNoGap(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidates(vip)
	l.pass(10)
	first := l.owner(vip)
	l.candidate(first, 0)
	if got := l.owners(vip); !slices.Equal(got, []string{first}) {
		t.Fatalf("before anybody took over %v own the address", got)
	}
	for range 10 {
		l.pass(1)
		if len(l.owners(vip)) == 0 {
			t.Fatal("nobody owns the address in between")
		}
	}
	if got := l.owner(vip); got == first {
		t.Error("nothing moved")
	}
}

func TestLastCandidateLeaves(t *testing.T) {
	l := newSegment(t, "a", "b")
	l.candidate("a", 0, vip)
	l.pass(10)
	l.owner(vip)
	l.candidate("a", 0)
	if got := l.owners(vip); len(got) > 0 {
		t.Errorf("%v own an address that nobody serves", got)
	}
	l.pass(10)
	if n := len(l.nodes["a"].own); n > 0 {
		t.Errorf("%d addresses are remembered for nothing", n)
	}
}

func TestWeights(t *testing.T) {
	for _, heavy := range []string{"a", "b", "c"} {
		l := newSegment(t, "a", "b", "c")
		for _, name := range l.names() {
			weight := int32(0)
			if name == heavy {
				weight = 10
			}
			l.candidate(name, weight, vip)
		}
		l.pass(10)
		if got := l.owner(vip); got != heavy {
			t.Errorf("%s owns the address, want %s, which weighs more", got, heavy)
		}
		l.candidate(heavy, 0, vip)
		l.pass(10)
		if got := l.owner(vip); got != heavy {
			t.Errorf("%s owns the address: it moved without need", got)
		}
	}
}

func TestManyAddresses(t *testing.T) {
	l := newSegment(t, "a", "b")
	var all []netip.Addr
	for i := range 2000 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	l.candidates(all...)
	l.pass(20)
	for _, a := range all {
		l.owner(a)
	}
	l.asleep["a"] = true
	l.pass(4)
	for _, a := range all {
		if got := l.owner(a); got != "b" {
			t.Fatalf("%s owns %s", got, a)
		}
	}
}

// A node that takes an address over from one that found a stranger to have it
// must ask itself: it was announced by nobody.
func TestAddressThatWasProbedForIsNotInherited(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		l := newSegment(t, "a", "b")
		l.candidates(vip)
		l.pass(10)
		first := l.owner(vip)
		if confirmed {
			l.nodes[first].confirm(vip)
			l.pass(1)
		}
		l.asleep[first] = true
		var changes []change
		second := l.nodes[map[string]string{"a": "b", "b": "a"}[first]]
		for range 10 {
			l.now = l.now.Add(Interval)
			changes = append(changes, second.tick(l.now)...)
			l.ask(second.node)
		}
		if want := (change{Address: vip, Owner: true, Inherited: confirmed}); !slices.Contains(changes, want) {
			t.Errorf("confirmed %v: %v, want %v", confirmed, changes, want)
		}
	}
}

// TestExpelled: the addresses of a node that is out are taken over, though its kernel answers.
func TestExpelled(t *testing.T) {
	l := newSegment(t, "a", "b", "c")
	l.candidates(vip)
	l.pass(10)
	owner := l.owner(vip)
	l.asleep[owner] = true
	l.kernel[owner] = l.nodes[owner].incarnation
	l.pass(20)
	if got := l.owners(vip); len(got) != 0 {
		t.Fatalf("%v own the address while its owner's kernel answers", got)
	}
	for _, name := range l.names() {
		if name != owner {
			l.send(name, nil)
			l.nodes[name].expel(l.now, owner)
		}
	}
	delete(l.kernel, owner) // nobody knows any more where to ask
	l.pass(5)
	l.owner(vip)
}

// marshal writes an advert as a node sends it.
func (a *Advert) marshal(keys *link.Keys) ([]byte, error) {
	return Format.Marshal(a.Message(make(net.HardwareAddr, 6)), keys)
}

func parseAdvert(b []byte, keys *link.Keys) (*Advert, error) {
	m, err := Format.Unmarshal(b, keys)
	if err != nil {
		return nil, err
	}
	if a := ReadAdvert(m); a != nil {
		return a, nil
	}
	return nil, link.ErrNone
}

// FuzzAdvert: what is written is read again, and hearings that are cut off are none.
func FuzzAdvert(f *testing.F) {
	keys := link.NewKeys([]byte("key"))
	f.Add("a", false, []byte{}, int32(0))
	f.Add("b", true, (&hearing{All: 2, Names: []uint32{7}}).append(nil), int32(-5))
	f.Fuzz(func(t *testing.T, node string, leaving bool, extra []byte, weight int32) {
		m := (&Advert{Node: node, Leaving: leaving, Entries: []Entry{{Address: vip, Owner: true}, {Address: vip6, Weight: weight}}}).Message(make(net.HardwareAddr, 6))
		m.Flags |= advertHears
		m.Extra = extra
		a := ReadAdvert(m)
		if a == nil {
			return
		}
		b, err := a.marshal(keys)
		if err != nil {
			return // such names are never written
		}
		read, err := parseAdvert(b, keys)
		if err != nil || !reflect.DeepEqual(read, a) {
			t.Errorf("read %+v, then %+v (%v)", a, read, err)
		}
	})
}
