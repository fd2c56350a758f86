package packet

import (
	"errors"
	"net/netip"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/model"
)

// translation is a connection as it is on both sides of the node.
type translation struct {
	proto            model.Protocol
	own              bool // of a socket of the node
	unnamed          bool // its first packet hasn't left yet, so the source isn't known
	client, frontend netip.AddrPort
	backend, source  netip.AddrPort // source is what the backend sees
	between          netip.AddrPort // and this what netfilter does: the client, perhaps with another port (begin.h, insert_reply_entry)
	idle             uint32         // seconds for which it may be silent
	replied          bool           // the backend has answered, or its answers go another way
}

// forget has conntrack forget what it has seen of a connection: the client talking
// to the backend, or, if it is the node's own, to the frontend. And that the port is
// reserved by which the backend knows it.
//
// What else has the connection's place can't work, since the packets have been the
// programs' until now: what is left of an earlier connection from the same port, or a new
// one that netfilter has given the port by which the backend knows this one. But of UDP
// flows, which aren't held, it is what has come meanwhile.
func (t translation) forget() error {
	from, to := t.between, t.backend
	if t.own {
		from, to = t.client, t.frontend
	}
	err := conntrack.Forget(t.proto, from, to)
	if t.hidden() {
		err = errors.Join(err, conntrack.Forget(t.proto, t.source, t.backend))
	}
	if t.proto != model.UDP && !t.unnamed {
		err = errors.Join(err, conntrack.Forget(t.proto, t.backend, t.source))
	}
	if t.proto != model.UDP && !t.own {
		err = errors.Join(err, conntrack.Forget(t.proto, t.client, t.frontend))
	}
	return err
}

// translations are the connections in the table that both ends still keep, or that
// they are about to make.
func (t *connTable) translations() (map[uint64]translation, error) {
	all, groups := map[uint64]translation{}, map[uint64]*connection{}
	err := t.each(func(key *tcTuple, e *tcConn) {
		if e.about().Owner == tcOwnerNETFILTERS {
			return // has them already
		}
		c := groups[e.Id]
		if c == nil {
			c = &connection{}
			groups[e.Id] = c
		}
		c.add(key, e)
		one := all[e.Id]
		one.proto = model.Protocol(key.Proto)
		switch {
		case e.Kind&^tcKindFROZEN == tcKindMASQ_UNNAMED:
			one.unnamed = true
		case e.has(tcTraitsTO_CLIENT):
		case e.has(tcTraitsHOLDS):
			one.client, one.frontend, one.backend = key.source(), key.destination(), e.To.destination()
			one.own, one.between = e.has(tcTraitsOF_NODE_SOCKET), e.To.source()
			if !one.source.IsValid() {
				one.source = e.To.source()
			}
		default:
			one.source = e.To.source()
		}
		all[e.Id] = one
	})
	if err != nil {
		return nil, err
	}
	for id, c := range groups {
		one := all[id]
		if one.idle = c.timeout(); !one.client.IsValid() || one.idle == tcpReset || one.idle == tcpClosed {
			delete(all, id)
			continue
		}
		one.replied = c.direct || c.answers&stepUsed != 0
		all[id] = one
	}
	return all, nil
}

// flow is the connection as conntrack is to have it: established, its windows not known.
func (t translation) flow() *conntrack.Flow {
	return &conntrack.Flow{
		Proto: t.proto, Client: t.client, Frontend: t.frontend, Backend: t.backend, Source: t.source,
		TCPState: conntrack.TCPEstablished, Status: conntrack.SeenReply | conntrack.Assured, Expires: t.idle,
	}
}
