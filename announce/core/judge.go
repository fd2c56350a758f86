package core

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"net/netip"
	"time"
)

// reconsider claims and gives up addresses, of those given and those that wait for something:
// of all of them if anything is different with other nodes.
func (e *election) reconsider(now time.Time, addresses []netip.Addr) []change {
	if e.survey(now) || e.stale {
		e.stale = false
		return e.judge(now, e.order)
	}
	return e.judge(now, append(addresses, inOrder(maps.Keys(e.open))...))
}

// judge claims and gives up addresses, of those given.
func (e *election) judge(now time.Time, addresses []netip.Addr) []change {
	var changes []change
	over := false
	for _, a := range addresses {
		s := e.own[a]
		if s == nil {
			continue
		}
		owner, others := e.look(s)
		best := owner == "" && !s.Owner && s.Candidate && e.best(s)
		delete(e.open, a)
		switch {
		case s.Owner && owner != "" && e.yields(s, owner):
			e.giveUp(s)
			changes = append(changes, change{Address: a})
		case s.Owner && !s.Candidate && (!others || now.Sub(s.released) > handOver):
			e.giveUp(s)
			changes = append(changes, change{Address: a})
		case !s.Owner && s.Candidate && owner == "" && best && !now.Before(e.ready):
			if s.contest.IsZero() {
				s.contest = now
			}
			if wait := e.hold(now, s); now.Sub(s.contest) < wait {
				if wait == holdUnheard && (e.again.IsZero() || s.contest.Add(wait).Before(e.again)) {
					e.again = s.contest.Add(wait)
				}
				break
			}
			unsettled := s.Keeps && !s.counted
			s.Owner, s.Keeps, s.Epoch, s.contest = true, false, s.highest+1, time.Time{}
			s.Probing = !s.hadOwner
			e.tell(s, repeats)
			s.highest = s.Epoch
			changes = append(changes, change{Address: a, Owner: true, Inherited: s.hadOwner, From: e.formerOf(now, s), Unsettled: unsettled})
		case owner != "" || !best:
			s.contest = time.Time{}
		}
		switch idle := !s.Candidate && !s.Owner && !s.Keeps; {
		case idle && s.tell == 0:
			delete(e.own, a)
			over = true
		case idle, best && !s.Owner, s.Owner && !s.Candidate:
			e.open[a] = true
		}
	}
	if over {
		e.tidy()
	}
	return changes
}

// tidy takes addresses that this node has nothing to do with any more out of the order.
func (e *election) tidy() {
	order, next := e.order[:0], e.next
	for i, a := range e.order {
		switch {
		case e.own[a] != nil:
			order = append(order, a)
		case i < next:
			e.next--
		}
	}
	e.order = order
}

// hold is how long this node waits before it claims an address that it is the best candidate for.
func (e *election) hold(now time.Time, s *standing) time.Duration {
	switch {
	case e.isGone(s.Address):
		return holdGone
	case e.mayBeBehind(now, s):
		if s.hadOwner {
			return missedFor / 2 // who answers no longer may be lost, or leave soon
		}
		return holdMissed
	case s.hadOwner, e.isFirst(now, s):
		return 0
	case e.behind, e.weighted[s.Address]:
		return holdNew
	}
	return holdUnheard
}

// waited claims the addresses for which nothing was heard of a better node in time.
func (e *election) waited(now time.Time) []change {
	if e.again.IsZero() || now.Before(e.again) {
		return nil
	}
	e.again = time.Time{}
	return e.reconsider(now, nil)
}

// isGone reports whether an owner goes on with an address that its data plane has no more.
func (e *election) isGone(a netip.Addr) bool {
	for _, m := range e.members {
		if seen := m.standing(a); seen != nil && seen.Owner && seen.Gone {
			return true
		}
	}
	return false
}

// look finds the living member that owns the address and stays, and whether
// there are other candidates.
func (e *election) look(s *standing) (owner string, others bool) {
	for name, m := range e.members {
		seen := m.standing(s.Address)
		if seen == nil || !seen.Candidate {
			continue
		}
		others = true
		if seen.Owner && (owner == "" || outranks(seen.Entry, name, e.members[owner].standing(s.Address).Entry, owner)) {
			owner = name
		}
	}
	return owner, others
}

// best reports whether no living candidate is better than this node.
func (e *election) best(s *standing) bool {
	for name, m := range e.members {
		seen := m.standing(s.Address)
		if seen != nil && seen.Candidate && better(seen.Entry, name, s.Entry, e.node) {
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
		if m.vitals.lives && better(Entry{Address: s.Address, Weight: s.Weight}, name, s.Entry, e.node) {
			return false
		}
	}
	return true
}

// yields reports whether this owner must give way to another one. One that never hears this
// node goes on anyway.
func (e *election) yields(s *standing, owner string) bool {
	return !s.Candidate || e.members[owner].vitals.deaf || outranks(e.members[owner].standing(s.Address).Entry, owner, s.Entry, e.node)
}

// outranks orders two claims: by epoch, then as candidates.
func outranks(a Entry, nodeA string, b Entry, nodeB string) bool {
	if a.Epoch != b.Epoch {
		return a.Epoch > b.Epoch
	}
	return better(a, nodeA, b, nodeB)
}

// better orders two candidates for an address.
func better(a Entry, nodeA string, b Entry, nodeB string) bool {
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
