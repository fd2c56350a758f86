package model

import (
	"net/netip"
	"slices"
)

// Resume is the specification for a packet from the middle of a TCP connection
// that this node doesn't know: which backends may have it, in the order in which
// they are asked. The first is the pool's choice, which is the same on every node.
// The second, if it is another one, is the choice before some of the pool's backends
// began to drain. A backend's node knows which connections it has been led; who knows
// this one goes on with it. If there is nobody to ask, the client is reset at once.
//
// Packets that begin a connection are [Table.Decide]'s.
func (t *Table) Resume(p Packet) []Backend {
	v := t.Decide(p)
	if v.Action != Forward || p.Proto != TCP || !v.Frontend.Routes[v.Origin].Stable {
		return nil
	}
	hash := v.Pool.hash(netip.AddrPortFrom(p.Src, p.SrcPort))
	chosen, _ := v.Pool.Pick(hash)
	list := []Backend{chosen}
	if former, found := v.Pool.PickFormer(hash); found && former.AddrPort() != chosen.AddrPort() {
		list = append(list, former)
	}
	return slices.DeleteFunc(list, func(b Backend) bool { return b.Addr == p.Src }) // masqueraded, so not direct
}

// PickFormer is what [Pool.Pick] was before some of the pool's Backends began to drain, if
// that backend is still there, be it as a draining one.
func (p *Pool) PickFormer(hash uint32) (b Backend, found bool) {
	former := &Pool{Backends: p.Former}
	was, found := former.Pick(hash)
	if !found {
		return Backend{}, false
	}
	for _, list := range [][]Backend{p.Backends, p.Draining} {
		if i, found := slices.BinarySearchFunc(list, was, Backend.Compare); found {
			return list[i], true
		}
	}
	return Backend{}, false
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
