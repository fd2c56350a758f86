package core

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// tickEvery is how often a node sends adverts, and looks after all that it announces.
const tickEvery = Interval / 2

// Announcer decides what a node announces on one link. Each of its methods that returns effects
// takes in an event; the effects are to be carried out in their order. It is not for concurrent use.
type Announcer struct {
	election  *election
	wanted    map[netip.Addr]int32
	claims    map[netip.Addr]*claim
	conflicts conflicts
	peers     *link.Peers
	handoffs  handoffs
	due       []netip.Addr          // claimed, and not begun to answer for yet
	fresh     map[netip.Addr]*claim // not confirmed yet
	ahead     ahead
	ticked    time.Time
	tried     time.Time // that a node's kernel was asked whether it answers at all
	// claimsBehind says that machines have said what addresses they have, and this node has not
	// read it yet.
	claimsBehind bool
	rand         *rand.Rand
	effects      []Effect
}

// New returns an announcer of a node, which is not to claim anything before it has listened for a
// moment. Incarnation is the number of this process; see link.Incarnations.
func New(node string, incarnation uint64, now time.Time, random *rand.Rand) *Announcer {
	return &Announcer{
		election: newElection(node, incarnation, now), claims: map[netip.Addr]*claim{}, conflicts: newConflicts(), peers: link.NewPeers(node),
		handoffs: newHandoffs(now), fresh: map[netip.Addr]*claim{}, ahead: ahead{}, ticked: now, rand: random,
	}
}

// Peers are the other nodes of the link, for the reader of its frames.
func (a *Announcer) Peers() *link.Peers { return a.peers }

// Incarnation is the number of this process.
func (a *Announcer) Incarnation() uint64 { return a.election.incarnation }

// Owned lists the addresses that this node has claimed.
func (a *Announcer) Owned() []netip.Addr { return a.election.owned() }

// KeepsConnections says whether this node can list the connections that it has of addresses: then
// it goes on with them when another node takes an address over. To be called before anything else.
func (a *Announcer) KeepsConnections(yes bool) { a.election.keeps = yes }

// Listen has this node hear the others from now on before it claims anything.
func (a *Announcer) Listen(now time.Time) {
	a.election.listen(now)
	a.ticked = now
}

// Senses are what the node knows of itself at an event.
type Senses struct {
	// Behind says that other nodes' frames came that aren't taken in yet, and ClaimsBehind that
	// those of other machines did, of the addresses that these have.
	Behind, ClaimsBehind bool
	// Held are the addresses that the kernel answers for, after a pause; see Slept. Nil if the
	// kernel can't answer.
	Held map[netip.Addr]bool
	// KeyDropped is when a key of the cluster was dropped; zero if none was.
	KeyDropped time.Time
	// IsOut reports whether a node is out; nil if none is.
	IsOut func(node string) bool
	// Misses are the nodes that this one misses: adverts say so. Nil if nobody looks.
	Misses *link.Missing
}

func (a *Announcer) sense(s Senses) {
	a.election.behind, a.claimsBehind = s.Behind, s.ClaimsBehind
	a.election.held, a.election.misses = nil, s.Misses
	if s.Held != nil {
		a.election.held = func(address netip.Addr) bool { return s.Held[address] }
	}
}

// IsReady reports whether the node has listened for long enough to claim something.
func (a *Announcer) IsReady(now time.Time) bool { return now.After(a.election.ready) }

// Conflicts counts the addresses that are left alone, since strangers have them.
func (a *Announcer) Conflicts() int { return len(a.conflicts.now) }

// Slept reports whether the node has not run for so long that Senses are to have what its kernel
// holds.
func (a *Announcer) Slept(now time.Time) bool { return a.election.slept(now) }

// Wake does what is due. It is to be called again after Next at the latest, and when Hurry says so.
func (a *Announcer) Wake(now time.Time, s Senses) []Effect {
	a.sense(s)
	if len(a.due) > 0 {
		a.carryOut(now)
	}
	a.apply(now, a.election.waited(now))
	if lost := a.watch(now); lost || now.Sub(a.ticked) >= tickEvery {
		a.tick(now, s)
		a.ticked = now
	}
	return a.taken()
}

// Next is how long there is nothing to do.
func (a *Announcer) Next(now time.Time) time.Duration {
	pause := min(tickEvery-now.Sub(a.ticked), a.election.untilOverdue(now))
	for _, c := range a.fresh {
		pause = min(pause, watchEvery, max(c.next.Sub(now), time.Millisecond))
	}
	return pause
}

func (a *Announcer) tick(now time.Time, s Senses) {
	a.apply(now, a.election.tick(now))
	a.expel(now, a.peers.Out(now, s.KeyDropped, func(node string) bool { return s.IsOut != nil && s.IsOut(node) }))
	a.peers.Expire(now)
	a.send(a.election.adverts(false))
	a.do(Refresh{a.election.incarnation})
	a.ask(a.election.ask(now))
	a.tryKernels(now)
	a.remind(now)
	a.followFormers(now)
}

// expel takes over from nodes that are out, and claims their addresses against what their kernels
// still answer.
func (a *Announcer) expel(now time.Time, out map[string]net.HardwareAddr) {
	for _, node := range slices.Sorted(maps.Keys(out)) {
		a.log(slog.LevelWarn, "a node is out, since it was deleted or doesn't know the present key: its addresses are taken over", "node", node)
		changes := a.election.expel(now, node)
		a.apply(now, changes)
		for _, c := range changes {
			if c.Owner {
				a.conflicts.contests[c.Address] = contest{mac: out[node].String(), heard: now, asked: now}
			}
		}
	}
}

// watch looks, more often than at all the rest, after owners that may be lost, and after
// addresses that nobody owned. It reports whether a node is lost.
func (a *Announcer) watch(now time.Time) (lost bool) {
	overdue, lost := a.election.overdue(now)
	a.ask(overdue)
	left := atOnce
	for _, address := range inOrder(maps.Keys(a.fresh)) {
		c := a.fresh[address]
		if a.claims[address] != c || c.confirmed {
			delete(a.fresh, address)
		} else if left > 0 && !now.Before(c.next) {
			a.attend(now, address, c)
			left--
		}
	}
	return lost
}

// KernelAnswers says whether other nodes' questions are answered by this node's kernel.
func (a *Announcer) KernelAnswers(yes bool) { a.election.kernelAnswers = yes }

// Wanted are the addresses that a node may own on a link.
type Wanted struct {
	Candidates map[netip.Addr]int32 // with this node's weight
	// Anywhere are the addresses that the data plane has, with whether their connections go on at
	// any node, and Weighted those for which nodes have different weights.
	Anywhere, Weighted map[netip.Addr]bool
}

// Want says which addresses this node may own from now on. Adopted are those that its kernel
// answers for in the name of an earlier process, with the epochs of the claims.
func (a *Announcer) Want(now time.Time, s Senses, w Wanted, adopted map[netip.Addr]uint32) []Effect {
	a.sense(s)
	a.election.anywhere, a.election.weighted = w.Anywhere, w.Weighted
	a.wanted = maps.Clone(w.Candidates)
	a.stand(now, a.election.adopt(now, adopted)...)
	return a.taken()
}

// stand puts up the wanted addresses, except those that strangers have. What changed
// before is carried out only then: owners are heard of as candidates.
func (a *Announcer) stand(now time.Time, before ...change) {
	candidates := maps.Clone(a.wanted)
	a.conflicts.expire(now)
	for address := range a.conflicts.now {
		if _, ok := a.wanted[address]; !ok && !a.ahead.has(address, now) {
			delete(a.conflicts.now, address)
		}
		delete(candidates, address)
	}
	a.apply(now, append(before, a.election.setCandidates(now, candidates)...))
	a.send(a.election.adverts(true))
}

// Hear takes in what another node says, whose frame Peers have admitted. IsNew says that its MAC
// wasn't known.
func (a *Announcer) Hear(now time.Time, ad *Advert, isNew bool) []Effect {
	if isNew {
		a.meet(now, ad.Node)
	}
	a.apply(now, a.election.receive(now, ad))
	a.heedConflicts(now, ad.Node, ad.Entries)
	return a.taken()
}

// meet is about a node whose MAC wasn't known. What was taken for a stranger's is a node's then,
// whose agent was away.
func (a *Announcer) meet(now time.Time, node string) {
	a.ask([]string{node})
	a.do(Hurry{})
	for _, address := range a.conflicts.meet(now, a.peers.MACOf(node).String()) {
		if c := a.fresh[address]; c != nil && c.careful && c.announced.IsZero() {
			c.careful, c.next = false, now // it was claimed again meanwhile
		}
	}
}

// Answered takes in that the kernel of the node with a MAC answers a question, in the name of an
// incarnation.
func (a *Announcer) Answered(now time.Time, mac [6]byte, incarnation uint64) {
	a.election.answer(now, a.peers.Answered(now, mac[:]), incarnation)
}

// Owns reports whether this node answers for an address just now. A process that
// slept doesn't before it has heard what the others did meanwhile.
func (a *Announcer) Owns(now time.Time, address netip.Addr) bool {
	c := a.claims[address]
	return c != nil && !c.announced.IsZero() && now.Sub(a.election.lastTick) < DeadAfter
}

// Leave tells the others that this node ends. It still answers while one of them IsAwaited to take
// over, and until End.
func (a *Announcer) Leave() []Effect {
	a.election.leaving = true
	for range repeats {
		a.send(a.election.adverts(false))
	}
	return a.taken()
}

// IsAwaited reports whether another node may take over an address that this one owns.
func (a *Announcer) IsAwaited() bool { return a.election.awaited() }

// End has this node answer for nothing any more.
func (a *Announcer) End() []Effect {
	for _, address := range inOrder(maps.Keys(a.claims)) {
		a.release(address)
	}
	return a.taken()
}

// Status is what a link knows of an address.
type Status struct {
	Address netip.Addr
	// Owner is the node that answers, "" if none is known.
	Owner string
	// Since is when this node began to answer; zero if it doesn't.
	Since time.Time
	// Confirmed says that this node has asked often enough whether a stranger has the address.
	Confirmed bool
	// Conflict is the MAC of a stranger who has the address; "" if there is none. FoundBy is the
	// node that has found one, if this one hasn't.
	Conflict, FoundBy string
}

// Status lists what is known of all addresses that this node may own.
func (a *Announcer) Status() []Status {
	var list []Status
	for address := range a.wanted {
		s := Status{Address: address, Owner: a.election.ownerOf(address), Conflict: a.conflicts.now[address].mac, FoundBy: a.conflicts.now[address].by}
		if c := a.claims[address]; c != nil {
			s.Since, s.Confirmed = c.announced, c.confirmed
			if s.Conflict == "" {
				s.Conflict = a.conflicts.contests[address].mac
			}
		}
		list = append(list, s)
	}
	for address, c := range a.claims {
		if _, ok := a.wanted[address]; !ok { // until another node has taken over
			list = append(list, Status{Address: address, Owner: a.election.node, Since: c.announced, Confirmed: c.confirmed})
		}
	}
	return list
}

// Size is how many things this node remembers: nodes, addresses, and what it knows of them.
func (a *Announcer) Size() int {
	e, h, c := a.election, &a.handoffs, &a.conflicts
	n := len(e.members) + len(a.peers.MACs()) + len(e.own) + len(e.order) + len(e.telling) + len(e.open)
	n += len(a.claims) + len(a.due) + len(a.fresh) + len(a.ahead) + len(c.now) + len(c.before) + len(c.contests)
	n += len(h.from) + len(h.led) + len(h.unknown) + len(h.since) + len(h.own)
	for _, m := range e.members {
		n += len(m.entries) + len(m.kept)
		if m.former != nil {
			n += len(m.former.entries)
		}
	}
	return n
}

// inOrder lists addresses in an order that is the same each time.
func inOrder(addresses func(yield func(netip.Addr) bool)) []netip.Addr {
	return slices.SortedFunc(addresses, netip.Addr.Compare)
}
