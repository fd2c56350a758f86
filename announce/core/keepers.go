package core

import (
	"net/netip"
	"time"
)

// A node that gives an address up keeps its connections: it says so in its adverts until
// it has none left, and the new owner leads their packets there. Who keeps what is asked
// anew all the time, so that it doesn't matter which of the agents starts again meanwhile.

// LostAfter this long without a word of a node its connections count as lost: longer than
// an agent takes to start again.
const LostAfter = 5 * time.Second

// keeper is what a node said of an address whose connections it keeps.
type keeper struct {
	epoch       uint32 // of its own claim
	said        time.Time
	incarnation uint64
}

// noteKept takes in what a node keeps. An owner that is no candidate is about to.
func (m *member) noteKept(now time.Time, a *Advert) {
	for _, e := range a.Entries {
		k, was := m.kept[e.Address]
		switch {
		case e.Keeps || e.Owner && !e.Candidate:
			m.kept[e.Address] = keeper{e.Epoch, now, a.Incarnation}
		case was && (e.Owner || k.incarnation == a.Incarnation || now.Sub(k.said) > LostAfter):
			delete(m.kept, e.Address) // a process that has just begun may not know yet
		}
	}
}

// giveUp ends owning an address.
func (e *election) giveUp(s *standing) {
	s.Keeps = e.keeps && !e.anywhere[s.Address]
	s.Owner, s.Probing, s.counted, s.putOff = false, false, false, false
	e.tell(s, repeats)
}

// formerOf names the node to lead connections of an address to: of those that keep some,
// the one that owned it last. A node that isn't the owner, and keeps connections itself,
// leads on what is of an owner before it.
func (e *election) formerOf(now time.Time, s *standing) (node string) {
	var latest uint32
	for name, m := range e.members {
		k, ok := m.kept[s.Address]
		if !ok || m.gone || now.Sub(k.said) > LostAfter || !s.Owner && k.epoch >= s.Epoch {
			continue
		}
		if node == "" || k.epoch > latest || k.epoch == latest && name < node {
			node, latest = name, k.epoch
		}
	}
	return node
}

// formers are the nodes to which this node leads connections of addresses.
func (e *election) formers(now time.Time) map[netip.Addr]string {
	var formers map[netip.Addr]string
	for _, m := range e.members {
		for a := range m.kept {
			s := e.own[a]
			if s == nil || !s.Owner && !s.Keeps {
				continue
			}
			if node := e.formerOf(now, s); node != "" {
				if formers == nil {
					formers = map[netip.Addr]string{}
				}
				formers[a] = node
			}
		}
	}
	return formers
}

// kept lists the addresses that this node gave up and may have connections of.
func (e *election) kept() []netip.Addr {
	var list []netip.Addr
	for a, s := range e.own {
		if s.Keeps && !s.Owner {
			list = append(list, a)
		}
	}
	return list
}

// unsettled counts the addresses of which isn't known yet how many connections this node
// will keep: those that it is about to give up, and those that it has just given up.
func (e *election) unsettled() (n int) {
	if !e.keeps {
		return 0
	}
	for _, s := range e.own {
		if s.Owner && !s.Candidate && !e.anywhere[s.Address] || s.Keeps && !s.Owner && !s.counted {
			n++
		}
	}
	return n
}

// keep notes that this node has connections of an address that it doesn't own. An earlier
// process may have given the address up.
func (e *election) keep(a netip.Addr) {
	s := e.own[a]
	if s == nil {
		s = e.stand(a)
	}
	if !s.Owner {
		if !s.Keeps {
			e.tell(s, repeats)
		}
		s.Keeps, s.counted = true, true
	}
}

// letGo notes that an address that this node gave up has no connections left.
func (e *election) letGo(a netip.Addr) {
	if s := e.own[a]; s != nil && s.Keeps {
		s.Keeps, e.open[a] = false, true
		e.tell(s, repeats)
	}
}
