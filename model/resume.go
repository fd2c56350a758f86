package model

import (
	"net/netip"
	"slices"
)

// Resume is the specification for a packet from the middle of a TCP connection
// that this node doesn't know: which backends may have it, in the order in which
// they are asked. The first is the pool's choice, the second one the choice if that one
// weren't there ([Pool.SecondChoices]); both are the same on every node. A backend's node knows
// which connections it has been led; who knows this one goes on with it. If there is
// nobody to ask, the client is reset at once.
//
// Packets that begin a connection are [Table.Decide]'s.
func (t *Table) Resume(p Packet) []Backend {
	v := t.Decide(p)
	if v.Action != Forward || p.Proto != TCP || !v.Frontend.Routes[v.Origin].Stable {
		return nil
	}
	hash := v.Pool.hash(netip.AddrPortFrom(p.Src, p.SrcPort))
	first := v.Pool.Maglev()
	i, _ := first.Pick(hash)
	list := []Backend{v.Pool.Backends[i]}
	if i, found := v.Pool.SecondChoices(first).Pick(hash); found && i != NoSecond {
		list = append(list, v.Pool.All()[i])
	}
	return slices.DeleteFunc(list, func(b Backend) bool { return b.Addr == p.Src }) // masqueraded, so not direct
}

// All are the pool's backends, draining ones included. Sorted.
func (p *Pool) All() []Backend {
	if len(p.Draining) == 0 {
		return p.Backends
	}
	list := slices.Concat(p.Backends, p.Draining)
	slices.SortFunc(list, Backend.Compare)
	return list
}

// NoSecond, in the table of seconds, says that a place has no second choice.
const NoSecond = MaxMaglev

// manyForSeconds is from how many backends on a pool has seconds only where one that
// drains was the choice: a table for each backend would cost too much, and one that has
// come takes few connections from each of so many.
const manyForSeconds = 20

// SecondChoices is a table like [Pool.Maglev], of which first is this pool's, with the second
// choices, as indices in [Pool.All]: the backend that would be chosen if the first choice weren't there,
// among all that may have connections. If the first choice has just come, that is the one
// chosen before; where a backend that drains now was chosen, it is that backend. So an
// endpoint that comes or goes leaves each connection with one of the two, and nodes agree
// on both without having seen the same changes.
func (p *Pool) SecondChoices(first Maglev) Maglev {
	all := p.All()
	if len(first) == 0 || !p.Stable {
		return nil
	}
	seconds := make(Maglev, len(first))
	if len(all) < 2 {
		return seconds.none()
	}
	index := make([]uint16, len(p.Backends)) // of first's, in all
	for i, b := range p.Backends[:min(len(p.Backends), MaxMaglev)] {
		at, _ := slices.BinarySearchFunc(all, b, Backend.Compare)
		index[i] = uint16(min(at, NoSecond))
	}
	if len(p.Backends) > manyForSeconds {
		if len(p.Draining) == 0 {
			return seconds.none()
		}
		former := maglev(all[:min(len(all), MaxMaglev)], len(first))
		for place, i := range first {
			if seconds[place] = former[place]; former[place] == index[i] {
				seconds[place] = NoSecond
			}
		}
		return seconds
	}
	for i := range p.Backends {
		at := int(index[i])
		others := maglev(slices.Concat(all[:at], all[at+1:]), len(first))
		for place, chosen := range first {
			if int(chosen) != i {
				continue
			}
			if seconds[place] = others[place]; int(others[place]) >= at {
				seconds[place]++
			}
		}
	}
	return seconds
}

// none has all places without second choice.
func (m Maglev) none() Maglev {
	for i := range m {
		m[i] = NoSecond
	}
	return m
}

// hashes reports whether the pool chooses by Maglev hashing.
func (p *Pool) hashes() bool {
	return p.Scheduler == MaglevHashing || p.Scheduler == MaglevPortHashing
}

// hash is what the pool's scheduler chooses a client's backend by.
func (p *Pool) hash(client netip.AddrPort) uint32 {
	if p.Scheduler == MaglevPortHashing {
		return HashAddrPort(client)
	}
	return HashAddr(client.Addr())
}
