package link

import (
	"net"
	"time"
)

const (
	// mostPeers is how many other nodes a link may have.
	mostPeers = 1024
	// forgottenAfter is how long nothing was heard of a node that is forgotten.
	forgottenAfter = time.Minute
)

// Peers are the other nodes of a link: those whose frames were believed. They are used under the
// lock of the port's reader.
type Peers struct {
	node   string
	byNode map[string]*peer
	byMAC  map[[6]byte]string
}

type peer struct {
	incarnation, sequence uint64
	mac                   [6]byte
	heard, signed         time.Time
}

// NewPeers returns the peers of a node: none yet.
func NewPeers(node string) *Peers {
	return &Peers{node: node, byNode: map[string]*peer{}, byMAC: map[[6]byte]string{}}
}

// Admit takes in what a frame that is signed says of its sender, unless it is an old one, or
// there are too many nodes already. IsNew says that the node wasn't known, or had another MAC.
func (p *Peers) Admit(now time.Time, h *Head) (ok, isNew bool) {
	if h.Node == p.node {
		return false, false
	}
	m := p.byNode[h.Node]
	switch {
	case m == nil && len(p.byNode) >= mostPeers:
		return false, false
	case m == nil:
		m = &peer{}
		p.byNode[h.Node] = m
	case h.Incarnation < m.incarnation || h.Incarnation == m.incarnation && h.Sequence <= m.sequence:
		return false, false
	}
	if isNew = m.mac != h.MAC || p.byMAC[h.MAC] != h.Node; isNew {
		p.dropMAC(h.Node, m)
		m.mac, p.byMAC[h.MAC] = h.MAC, h.Node
	}
	m.incarnation, m.sequence, m.heard, m.signed = h.Incarnation, h.Sequence, now, now
	return true, isNew
}

// dropMAC forgets the MAC that a node had, unless another one has it now.
func (p *Peers) dropMAC(node string, m *peer) {
	if p.byMAC[m.mac] == node {
		delete(p.byMAC, m.mac)
	}
}

// Answered notes that the kernel of the node with a MAC answers, and names the node; "" if none
// has that MAC.
func (p *Peers) Answered(now time.Time, mac net.HardwareAddr) string {
	node := p.NodeOf(mac)
	if m := p.byNode[node]; m != nil {
		m.heard = now
	}
	return node
}

// outAfter is how long a node has to sign with a key that is good, once another one was dropped.
const outAfter = 12 * time.Second

// Out forgets the nodes that are out: those that are said to be, and those that have not signed a
// frame since a key was dropped, long enough ago for them to know the next one. It names them, with
// their MACs, whatever their kernel still answers.
func (p *Peers) Out(now, dropped time.Time, isOut func(node string) bool) map[string]net.HardwareAddr {
	due := !dropped.IsZero() && now.Sub(dropped) >= outAfter
	out := map[string]net.HardwareAddr{}
	for node, m := range p.byNode {
		if due && m.signed.Before(dropped) || isOut(node) {
			out[node] = p.MACOf(node)
			p.dropMAC(node, m)
			delete(p.byNode, node)
		}
	}
	return out
}

// Expire forgets the nodes of which nothing was heard for long.
func (p *Peers) Expire(now time.Time) {
	for node, m := range p.byNode {
		if now.Sub(m.heard) > forgottenAfter {
			p.dropMAC(node, m)
			delete(p.byNode, node)
		}
	}
}

// NodeOf names the node that has a MAC; "" if none has.
func (p *Peers) NodeOf(mac net.HardwareAddr) string {
	if len(mac) != 6 {
		return ""
	}
	return p.byMAC[[6]byte(mac)]
}

// MACOf is where a node is; nil if it isn't known.
func (p *Peers) MACOf(node string) net.HardwareAddr {
	m := p.byNode[node]
	if m == nil {
		return nil
	}
	return net.HardwareAddr(append([]byte(nil), m.mac[:]...))
}

// MACs are those of all nodes.
func (p *Peers) MACs() []net.HardwareAddr {
	list := make([]net.HardwareAddr, 0, len(p.byNode))
	for node := range p.byNode {
		list = append(list, p.MACOf(node))
	}
	return list
}
