package l2

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// The times of the election.
const (
	// Interval between the adverts of a node.
	Interval = 100 * time.Millisecond
	// deadAfter this long without an advert a node is taken for dead. A node
	// that has not run for as long itself gives up what it owns.
	deadAfter = 3 * Interval
	// holdNew is how long the best candidate waits for others' word about an
	// address that nobody owned so far.
	holdNew = Interval / 2
	// handOver is how long an owner that leaves goes on while nobody takes over.
	handOver = 10 * Interval
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
	leaving     bool
	// kernelAnswers says that this node's kernel answers questions.
	kernelAnswers bool
	keeps         bool // connections of addresses that are given up
	// anywhere are addresses whose connections any node goes on with: none is kept.
	anywhere map[netip.Addr]bool
	// weighted are addresses for which nodes have weights.
	weighted map[netip.Addr]bool
	// held reports whether this node's kernel answers for an address, and no other
	// node has said meanwhile that it does. Nil if the kernel answers for none.
	held func(netip.Addr) bool
}

// member is another node of the link.
type member struct {
	life
	// former is what the process before the present one owned: valid as long as the
	// node's kernel answers in its name. Nil if there is nothing.
	former *life
	// answered is when the node's kernel last said that it answers, in the name of
	// which incarnation.
	answered time.Time
	answerOf uint64
	// gone says that a node whose kernel answers, which is nothing that waits for its agent,
	// doesn't any more.
	gone, answers bool
	// asked is when it was asked that for the first time since it was heard, and
	// asks how often.
	asked time.Time
	asks  int
	// kept are the addresses that the node has connections of, though others own them now.
	kept map[netip.Addr]keeper
}

// life is what one process of a node said.
type life struct {
	incarnation, sequence uint64
	heard                 time.Time
	cycle                 uint32
	entries               map[netip.Addr]*seen
}

// lives reports whether what a process said is in force: it was heard lately, or
// the node's kernel answers in its name.
func (m *member) lives(now time.Time, l *life) bool {
	return !m.gone && (now.Sub(l.heard) <= deadAfter || l.incarnation == m.answerOf && now.Sub(m.answered) <= deadAfter)
}

// mayAnswer reports whether the kernel of a node that is silent had no time yet to
// say that it answers: this node was too busy to ask.
func (m *member) mayAnswer(now time.Time) bool {
	silent := min(now.Sub(m.heard), now.Sub(m.answered))
	return !m.gone && silent <= askFor && (m.asks < leastAsks || now.Sub(m.asked) < Interval)
}

// standing is what the node has to do with an address just now; nil if that is
// nothing.
func (m *member) standing(now time.Time, a netip.Addr) *seen {
	if s := m.entries[a]; s != nil {
		if m.lives(now, &m.life) || s.Owner && m.mayAnswer(now) {
			return s
		}
		return nil
	}
	if m.former != nil && m.lives(now, m.former) {
		return m.former.entries[a]
	}
	return nil
}

// begin takes in that another process speaks for the node.
func (m *member) begin(incarnation uint64) {
	before := m.life
	m.life = life{incarnation: incarnation, entries: map[netip.Addr]*seen{}}
	maps.DeleteFunc(before.entries, func(_ netip.Addr, s *seen) bool { return !s.Owner })
	if len(before.entries) > 0 {
		m.former = &before
	}
}

func (m *member) forget(a netip.Addr) {
	delete(m.entries, a)
	if m.former != nil {
		delete(m.former.entries, a)
	}
}

// seen is what a member said of an address, and in which of its cycles.
type seen struct {
	entry
	cycle uint32
}

// standing is what this node has to do with an address.
type standing struct {
	entry
	highest  uint32    // epoch heard of
	contest  time.Time // when this node began to be the one to claim; zero if it isn't
	released time.Time // when an owner ceased to be a candidate
	hadOwner bool      // a node announced it
	tell     int       // adverts that still have to name it
	counted  bool      // of an address that is kept: there are connections
}

// change is an address that this node began or ceased to own.
type change struct {
	Address netip.Addr
	Owner   bool
	// Inherited addresses were another node's: no need to ask whether somebody
	// has them.
	Inherited bool
	// From is the node that has connections of the address; "" if none has.
	From string
	// Unsettled says that this node gave the address up a moment ago, and has not counted its
	// own connections since.
	Unsettled bool
}

func newElection(node string, now time.Time) *election {
	return &election{
		node: node, incarnation: uint64(now.UnixNano()), ready: now.Add(deadAfter), lastTick: now,
		members: map[string]*member{}, own: map[netip.Addr]*standing{},
	}
}

// setCandidates says which addresses this node may own, and with which weights.
func (e *election) setCandidates(now time.Time, candidates map[netip.Addr]int32) []change {
	for a, weight := range candidates {
		s := e.own[a]
		if s == nil {
			s = e.stand(a)
		}
		if !s.Candidate || s.Weight != weight {
			s.Candidate, s.Weight, s.tell, s.released = true, weight, repeats, time.Time{}
		}
	}
	for a, s := range e.own {
		if _, ok := candidates[a]; !ok && s.Candidate {
			s.Candidate, s.tell, s.released, s.contest = false, repeats, now, time.Time{}
		}
	}
	return e.evaluate(now)
}

// stand begins to have to do with an address, and knows what was heard of it.
func (e *election) stand(a netip.Addr) *standing {
	s := &standing{entry: entry{Address: a}}
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

// receive takes in an advert of another node.
func (e *election) receive(now time.Time, a *advert) []change {
	if a.Node == e.node {
		return nil
	}
	m := e.members[a.Node]
	if m == nil {
		m = &member{life: life{incarnation: a.Incarnation, entries: map[netip.Addr]*seen{}}, kept: map[netip.Addr]keeper{}}
		e.members[a.Node] = m
		for _, s := range e.own { // which it can't know yet
			s.tell = max(s.tell, 1)
		}
	}
	switch {
	case a.Incarnation < m.incarnation || a.Incarnation == m.incarnation && a.Sequence <= m.sequence && m.sequence != 0:
		return nil
	case a.Incarnation > m.incarnation:
		m.begin(a.Incarnation)
	}
	var about []netip.Addr
	m.sequence, m.heard, m.cycle, m.asks, m.gone, m.answers = a.Sequence, now, a.Cycle, 0, false, a.Answers
	m.noteKept(now, a)
	if a.Leaving {
		m.entries, m.former = map[netip.Addr]*seen{}, nil
		m.heard, m.answered = time.Time{}, time.Time{}
		return e.evaluate(now)
	}
	for _, entry := range a.Entries {
		about = append(about, entry.Address)
		if !entry.Candidate && !entry.Owner && !entry.Keeps {
			m.forget(entry.Address)
		} else {
			m.entries[entry.Address] = &seen{entry, a.Cycle}
		}
		if s := e.own[entry.Address]; s != nil {
			s.highest = max(s.highest, entry.Epoch)
			s.hadOwner = s.hadOwner || entry.Owner && !entry.Probing
		}
	}
	return e.judge(now, about)
}

// tick is to be called every Interval and more often. Late says that this node
// slept for so long that others may have taken it for dead.
func (e *election) tick(now time.Time) []change {
	late := now.Sub(e.lastTick) > deadAfter
	e.lastTick = now
	var changes []change
	if late && len(e.members) > 0 {
		changes = e.stepBack(now)
	}
	for name, m := range e.members {
		if now.Sub(m.heard) > time.Minute && now.Sub(m.answered) > time.Minute {
			delete(e.members, name)
			continue
		}
		if m.former != nil && !m.lives(now, m.former) {
			m.former = nil
		}
		for a, s := range m.entries {
			if m.cycle-s.cycle > 1 {
				delete(m.entries, a)
			}
		}
	}
	return append(changes, e.evaluate(now)...)
}

// stepBack gives up all addresses and listens first. It keeps those that the kernel
// went on to answer for.
func (e *election) stepBack(now time.Time) []change {
	var changes []change
	for _, s := range e.own {
		if s.Owner && (e.held == nil || s.Probing || !e.held(s.Address)) {
			s.hadOwner = s.hadOwner || !s.Probing
			e.giveUp(s)
			changes = append(changes, change{Address: s.Address})
		}
		s.contest = time.Time{}
	}
	e.ready = now.Add(deadAfter)
	return changes
}

// adopt takes over what the kernel answers for in the name of an earlier process:
// addresses, and the epochs of the claims.
func (e *election) adopt(now time.Time, claims map[netip.Addr]uint32) []change {
	var changes []change
	for a, epoch := range claims {
		if e.own[a] != nil {
			continue
		}
		e.own[a] = &standing{
			entry: entry{Address: a, Owner: true, Epoch: epoch}, highest: epoch, hadOwner: true, tell: repeats, released: now,
		}
		e.order = append(e.order, a)
		changes = append(changes, change{Address: a, Owner: true, Inherited: true})
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
	for name, m := range e.members {
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

func (l *life) owns() bool {
	for _, s := range l.entries {
		if s.Owner {
			return true
		}
	}
	return false
}

// answer takes in that a member's kernel answers, in the name of an incarnation.
func (e *election) answer(now time.Time, node string, incarnation uint64) {
	if m := e.members[node]; m != nil {
		m.answered, m.answerOf, m.asks, m.gone = now, incarnation, 0, false
	}
}

// evaluate claims and gives up addresses, of all of them.
func (e *election) evaluate(now time.Time) []change { return e.judge(now, slices.Clone(e.order)) }

// judge claims and gives up addresses, of those given.
func (e *election) judge(now time.Time, addresses []netip.Addr) []change {
	var changes []change
	for _, a := range addresses {
		s := e.own[a]
		if s == nil {
			continue
		}
		owner, others := e.look(now, s)
		best := owner == "" && !s.Owner && s.Candidate && e.best(now, s)
		switch {
		case s.Owner && owner != "" && e.yields(now, s, owner):
			e.giveUp(s)
			changes = append(changes, change{Address: a})
		case s.Owner && !s.Candidate && (!others || now.Sub(s.released) > handOver):
			e.giveUp(s)
			changes = append(changes, change{Address: a})
		case !s.Owner && s.Candidate && owner == "" && best && !now.Before(e.ready):
			if s.contest.IsZero() {
				s.contest = now
			}
			if !s.hadOwner && (others || e.weighted[a]) && !e.isFirst(now, s) && now.Sub(s.contest) < holdNew {
				continue
			}
			unsettled := s.Keeps && !s.counted
			s.Owner, s.Keeps, s.Epoch, s.tell, s.contest = true, false, s.highest+1, repeats, time.Time{}
			s.Probing = !s.hadOwner
			s.highest = s.Epoch
			changes = append(changes, change{Address: a, Owner: true, Inherited: s.hadOwner, From: e.formerOf(now, s), Unsettled: unsettled})
		case owner != "" || !best:
			s.contest = time.Time{}
		}
		if !s.Candidate && !s.Owner && !s.Keeps && s.tell == 0 {
			delete(e.own, a)
			e.order = slices.DeleteFunc(e.order, func(b netip.Addr) bool { return a == b })
		}
	}
	return changes
}

// look finds the living member that owns the address and stays, and whether
// there are other candidates.
func (e *election) look(now time.Time, s *standing) (owner string, others bool) {
	for name, m := range e.members {
		seen := m.standing(now, s.Address)
		if seen == nil || !seen.Candidate {
			continue
		}
		others = true
		if seen.Owner && (owner == "" || outranks(seen.entry, name, e.members[owner].standing(now, s.Address).entry, owner)) {
			owner = name
		}
	}
	return owner, others
}

// best reports whether no living candidate is better than this node.
func (e *election) best(now time.Time, s *standing) bool {
	for name, m := range e.members {
		seen := m.standing(now, s.Address)
		if seen != nil && seen.Candidate && better(seen.entry, name, s.entry, e.node) {
			return false
		}
	}
	return true
}

// isFirst reports whether no living node is better, candidate or not: then there is nobody
// to wait for. Where weights count, others' are unknown before they say them.
func (e *election) isFirst(now time.Time, s *standing) bool {
	if e.weighted[s.Address] {
		return len(e.alive(now)) == 0
	}
	for name, m := range e.members {
		if m.lives(now, &m.life) && better(entry{Address: s.Address, Weight: s.Weight}, name, s.entry, e.node) {
			return false
		}
	}
	return true
}

// yields reports whether this owner must give way to another one.
func (e *election) yields(now time.Time, s *standing, owner string) bool {
	return !s.Candidate || outranks(e.members[owner].standing(now, s.Address).entry, owner, s.entry, e.node)
}

// outranks orders two claims: by epoch, then as candidates.
func outranks(a entry, nodeA string, b entry, nodeB string) bool {
	if a.Epoch != b.Epoch {
		return a.Epoch > b.Epoch
	}
	return better(a, nodeA, b, nodeB)
}

// better orders two candidates for an address.
func better(a entry, nodeA string, b entry, nodeB string) bool {
	if a.Weight != b.Weight {
		return a.Weight > b.Weight
	}
	return bytes.Compare(hash(nodeA, a.Address), hash(nodeB, a.Address)) < 0
}

// hash spreads addresses over nodes as MetalLB does.
func hash(node string, a netip.Addr) []byte {
	sum := sha256.Sum256([]byte(node + "#" + a.String()))
	return sum[:]
}

// confirm notes that no stranger has an address that this node owns.
func (e *election) confirm(a netip.Addr) {
	if s := e.own[a]; s != nil && s.Owner {
		s.Probing, s.hadOwner, s.tell = false, true, repeats
	}
}

// adverts are what to send now. At least one goes out each Interval: what
// changed, and of the rest as much as has room. Urgent ones have changes only.
func (e *election) adverts(urgent bool) []*advert {
	var entries []entry
	for _, a := range e.order {
		if s := e.own[a]; s.tell > 0 {
			s.tell--
			entries = append(entries, s.entry)
		}
	}
	if urgent && len(entries) == 0 {
		return nil
	}
	for range min(maxEntries-len(entries)%maxEntries, len(e.order)) {
		if e.next >= len(e.order) {
			break
		}
		entries = append(entries, e.own[e.order[e.next]].entry)
		e.next++
	}
	var list []*advert
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), maxEntries)
		e.sequence++
		list = append(list, &advert{
			Node: e.node, Incarnation: e.incarnation, Sequence: e.sequence, Cycle: e.cycle, Entries: entries[:n], Leaving: e.leaving, Answers: e.kernelAnswers,
		})
		entries = entries[n:]
	}
	if e.next >= len(e.order) {
		e.next = 0
		e.cycle++
	}
	return list
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
func (e *election) ownerOf(now time.Time, a netip.Addr) string {
	s := e.own[a]
	if s == nil {
		return ""
	}
	if s.Owner {
		return e.node
	}
	owner, _ := e.look(now, s)
	return owner
}

// alive lists the other nodes that were heard lately.
func (e *election) alive(now time.Time) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(e.members)) {
		if now.Sub(e.members[name].heard) <= deadAfter {
			list = append(list, name)
		}
	}
	return list
}
