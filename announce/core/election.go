package core

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// The times of the election.
const (
	// Interval between the adverts of a node.
	Interval = 100 * time.Millisecond
	// DeadAfter this long without an advert a node is taken for dead. A node
	// that has not run for as long itself gives up what it owns.
	DeadAfter = 3 * Interval
	// holdUnheard is how long the best candidate waits for others' word about an address that
	// nobody owned so far, while a living node would be better: that one may be about to say
	// that it is a candidate, too.
	holdUnheard = 2 * time.Millisecond
	// holdNew is how long it waits if nodes have weights for the address, or if others' word is
	// yet to be read.
	holdNew = Interval / 2
	// holdGone is how long it waits when the data plane of the owner, which goes on, has the
	// address no more: this node's may be about to lose it, too.
	holdGone = Interval
	// handOver is how long an owner that leaves goes on while nobody takes over.
	handOver = 50 * Interval
	// repeats is how often a change is told.
	repeats = 3
)

// election decides which node of a link owns which address. It is pure: frames
// and times go in; frames and what is owned come out. One election is for one
// link of one node.
//
// An owner stays. Where there is none, the candidate with the highest weight
// claims, and among equals the one whose hash of name and address is lowest.
// Each claim has a higher epoch than all before it. If two nodes own an address,
// because a part of the link was cut off or one of them slept, the higher epoch
// wins and the other one stops when it hears of it.
type election struct {
	node        string
	incarnation uint64
	sequence    uint64
	cycle       uint32
	ready       time.Time // no claims before: first hear the others
	lastTick    time.Time
	members     map[string]*member
	own         map[netip.Addr]*standing
	order       []netip.Addr // of own, for the cycle
	next        int          // in order
	telling     []*standing  // those that adverts have to name
	// open are addresses that wait for something, and stale says that all are to be looked at:
	// something is different with another node.
	open  map[netip.Addr]bool
	stale bool
	again time.Time // when open ones are to be looked at, before the next tick; zero if none is
	// behind says that others have said what this node hasn't read yet.
	behind  bool
	named   int    // of those that are heard, the last one that was named
	self    uint32 // hash of the node's name
	leaving bool
	misses  *link.Missing // what the detector says
	// kernelAnswers says that this node's kernel answers questions.
	kernelAnswers bool
	tried         int  // of those that are heard, the last one whose kernel was tried
	keeps         bool // connections of addresses that are given up
	// anywhere are the addresses that the data plane has, with whether any node goes on with
	// their connections: then none is kept. Nil if that isn't known.
	anywhere map[netip.Addr]bool
	// weighted are addresses for which nodes have weights.
	weighted map[netip.Addr]bool
	// held reports whether this node's kernel answers for an address, and no other
	// node has said meanwhile that it does. Nil if the kernel answers for none.
	held func(netip.Addr) bool
}

// standing is what this node has to do with an address.
type standing struct {
	Entry
	highest  uint32    // epoch heard of
	contest  time.Time // when this node began to be the one to claim; zero if it isn't
	released time.Time // when an owner ceased to be a candidate
	hadOwner bool      // a node announced it
	tell     int       // adverts that still have to name it
	urgent   bool      // and none has, since it changed
	putOff   bool      // nobody is told yet that this node owns it
	counted  bool      // of an address that is kept: there are connections
}

// change is an address that this node began or ceased to own.
type change struct {
	Address netip.Addr
	Owner   bool
	// Inherited addresses were another node's: no need to ask whether somebody
	// has them.
	Inherited bool
	// Adopted addresses are answered for already.
	Adopted bool
	// From is the node that has connections of the address; "" if none has.
	From string
	// Unsettled says that this node gave the address up a moment ago, and has not counted its
	// own connections since.
	Unsettled bool
}

func newElection(node string, incarnation uint64, now time.Time) *election {
	return &election{
		node: node, incarnation: incarnation, ready: now.Add(DeadAfter), lastTick: now,
		members: map[string]*member{}, own: map[netip.Addr]*standing{}, open: map[netip.Addr]bool{}, self: link.HashOf(node),
	}
}

// setCandidates says which addresses this node may own, and with which weights.
func (e *election) setCandidates(now time.Time, candidates map[netip.Addr]int32) []change {
	e.listenOn(now)
	var about []netip.Addr
	for a, weight := range candidates {
		if s := e.own[a]; s == nil || !s.Candidate || s.Weight != weight {
			about = append(about, a)
		}
	}
	for a, s := range e.own {
		if _, ok := candidates[a]; !ok && s.Candidate {
			about = append(about, a)
		}
	}
	slices.SortFunc(about, netip.Addr.Compare)
	for _, a := range about {
		s := e.own[a]
		if s == nil {
			s = e.stand(a)
		}
		if weight, is := candidates[a]; is {
			s.Candidate, s.Gone, s.Strange, s.Weight, s.released = true, false, false, weight, time.Time{}
		} else {
			_, served := e.anywhere[a]
			s.Candidate, s.Gone, s.released, s.contest = false, e.anywhere != nil && !served, now, time.Time{}
		}
		e.tell(s, repeats)
	}
	return e.reconsider(now, about)
}

// stand begins to have to do with an address, and knows what was heard of it.
func (e *election) stand(a netip.Addr) *standing {
	s := &standing{Entry: Entry{Address: a}}
	for _, m := range e.members {
		if seen := m.entries[a]; seen != nil {
			s.highest = max(s.highest, seen.Epoch)
			s.hadOwner = s.hadOwner || seen.Owner && !seen.Probing
		}
	}
	e.own[a] = s
	e.order = append(e.order, a)
	return s
}

// tick is to be called every Interval and more often. Late says that this node
// slept for so long that others may have taken it for dead.
func (e *election) tick(now time.Time) []change {
	e.listenOn(now)
	late := e.slept(now)
	e.lastTick = now
	var changes []change
	if late && (len(e.members) > 0 || e.held != nil) { // others may have come that are yet to be heard
		changes = e.stepBack(now)
	}
	for name, m := range e.members {
		if now.Sub(m.heard) > time.Minute && now.Sub(m.answered) > time.Minute {
			delete(e.members, name)
			e.stale = true
			continue
		}
		if m.former != nil && !m.lives(now, m.former) {
			m.former = nil
		}
	}
	return append(changes, e.reconsider(now, nil)...)
}

// slept reports whether this node has not run for so long that others may have taken it for dead.
func (e *election) slept(now time.Time) bool { return now.Sub(e.lastTick) > DeadAfter }

// listen has this node hear the others from now on before it claims anything.
func (e *election) listen(now time.Time) { e.ready, e.lastTick = now.Add(DeadAfter), now }

// listenOn puts off claims of a node that has not run while it should have listened: what it
// was told meanwhile is yet to be read.
func (e *election) listenOn(now time.Time) {
	if read := now.Add(Interval); now.Sub(e.lastTick) > Interval && e.lastTick.Before(e.ready) && read.After(e.ready) {
		e.ready = read
	}
}

// stepBack gives up all addresses and listens first. It keeps those that the kernel
// went on to answer for.
func (e *election) stepBack(now time.Time) []change {
	var changes []change
	for _, a := range e.order {
		s := e.own[a]
		if s.Owner && !s.putOff && (e.held == nil || !e.held(s.Address)) {
			s.hadOwner = s.hadOwner || !s.Probing
			e.giveUp(s)
			changes = append(changes, change{Address: s.Address})
		}
		s.contest = time.Time{}
	}
	e.stale = true
	e.ready = now.Add(DeadAfter)
	return changes
}

// adopt takes over what the kernel answers for in the name of an earlier process:
// addresses, and the epochs of the claims.
func (e *election) adopt(now time.Time, claims map[netip.Addr]uint32) []change {
	var changes []change
	for _, a := range inOrder(maps.Keys(claims)) {
		epoch := claims[a]
		if e.own[a] != nil {
			continue
		}
		s := &standing{Entry: Entry{Address: a, Owner: true, Epoch: epoch}, highest: epoch, hadOwner: true, released: now}
		e.own[a] = s
		e.order = append(e.order, a)
		e.tell(s, repeats)
		e.stale = true
		changes = append(changes, change{Address: a, Owner: true, Inherited: true, Adopted: true})
	}
	return changes
}

const (
	// askFor is how long an owner that is silent is asked whether its kernel answers.
	askFor = 10 * Interval
	// leastAsks is how often it is asked before another node takes over.
	leastAsks = 3
)

// ask names the members whose kernels are to be asked whether they answer: owners
// that are silent, or of which an earlier process was one.
func (e *election) ask(now time.Time) []string {
	var names []string
	for _, name := range e.names() {
		m := e.members[name]
		silent := now.Sub(m.heard) > Interval && (now.Sub(m.heard) <= askFor || now.Sub(m.answered) <= askFor)
		if m.former != nil || silent && m.owns() {
			names = append(names, name)
			if m.asks == 0 {
				m.asked = now
			}
			m.asks++
		}
	}
	return names
}

// nextToTry names another node that was heard lately, one after the other.
func (e *election) nextToTry(now time.Time) string {
	names := e.alive(now)
	if len(names) == 0 {
		return ""
	}
	e.tried++
	return names[e.tried%len(names)]
}

// answer takes in that a member's kernel answers, in the name of an incarnation.
func (e *election) answer(now time.Time, node string, incarnation uint64) {
	if m := e.members[node]; m != nil {
		m.answered, m.answerOf, m.asks, m.gone = now, incarnation, 0, false
		e.stale = e.examine(now, m) || e.stale
	}
}

// confirm notes that no stranger has an address that this node owns.
func (e *election) confirm(a netip.Addr) {
	if s := e.own[a]; s != nil && s.Owner {
		s.Probing, s.hadOwner = false, true
		e.tell(s, repeats)
	}
}

// strange notes that a stranger has an address: this node gives it up at once, whether another
// one would take it or not, and the others are told.
func (e *election) strange(a netip.Addr) (changes []change) {
	s := e.own[a]
	if s == nil {
		return nil
	}
	if s.Owner {
		e.giveUp(s)
		changes = append(changes, change{Address: a})
	}
	s.Candidate, s.Strange, s.hadOwner = false, true, false
	e.tell(s, repeats)
	return changes
}

// awaited reports whether another node may take over an address that this one owns.
func (e *election) awaited() bool {
	for _, s := range e.own {
		if _, others := e.look(s); s.Owner && others {
			return true
		}
	}
	return false
}

// owned lists the addresses that this node owns.
func (e *election) owned() []netip.Addr {
	var list []netip.Addr
	for a, s := range e.own {
		if s.Owner {
			list = append(list, a)
		}
	}
	return list
}

// ownerOf names the living node that owns an address, "" if none is known.
func (e *election) ownerOf(a netip.Addr) string {
	s := e.own[a]
	if s == nil {
		return ""
	}
	if s.Owner {
		return e.node
	}
	owner, _ := e.look(s)
	return owner
}

// alive lists the other nodes that were heard lately.
func (e *election) alive(now time.Time) []string {
	var list []string
	for _, name := range e.names() {
		if now.Sub(e.members[name].heard) <= DeadAfter {
			list = append(list, name)
		}
	}
	return list
}

// names lists the other nodes, in an order that is the same each time.
func (e *election) names() []string { return slices.Sorted(maps.Keys(e.members)) }
