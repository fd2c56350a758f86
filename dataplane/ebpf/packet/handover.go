package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// frozenAtOnce is how many connections change hands at a time. Packets of theirs that
// come meanwhile are dropped, to be sent again.
const frozenAtOnce = 1000

// translation is a connection as it is on both sides of the node.
type translation struct {
	proto            model.Protocol
	own              bool // of a socket of the node
	unnamed          bool // its first packet hasn't left yet, so the source isn't known
	client, frontend netip.AddrPort
	backend, source  netip.AddrPort // source is what the backend sees
	between          netip.AddrPort // and this what netfilter does: the client, perhaps with another port (begin.h, insert_reply_entry)
	idle             uint32         // seconds for which it may be silent
}

// Leave lists the connections of the node whose pins are in a directory: see
// migrate.Connections. New ones are another plane's from now on, and this process does
// nothing more in the background.
func (p *Path) Leave(dir string) (parts []migrate.Source, err error) {
	p.endLoops()
	if p.leaving == nil {
		pinned, err := maps.OpenResizable(dir, maps.ConnsMap)
		if err != nil || pinned == nil {
			return nil, err
		}
		p.leaving = &connTable{m: pinned}
	}
	if err := p.leaving.holdPorts(); err != nil {
		return nil, err
	}
	if err := setPinnedPhase(dir, aside); err != nil {
		return nil, err
	}
	kernel.Quiesce()
	all, err := p.leaving.translations()
	if err != nil {
		return nil, err
	}
	some := map[uint64]translation{}
	for id, one := range all {
		if some[id] = one; len(some) == frozenAtOnce {
			parts, some = append(parts, &batch{conns: p.leaving, some: some}), map[uint64]translation{}
		}
	}
	if len(some) > 0 {
		parts = append(parts, &batch{conns: p.leaving, some: some})
	}
	return parts, nil
}

// batch is how some connections leave the programs: see migrate.Source. Those of which
// nothing has left the node yet begin anew, with the other plane, when their first packet is
// sent again. UDP flows aren't frozen, since nobody sends their packets again: netfilter
// gives those that come meanwhile another port.
type batch struct {
	conns *connTable
	some  map[uint64]translation
	keys  map[tcTuple]uint64 // their entries, and the connection that each is of
	ids   map[conntrack.Flow]uint64
}

// Freeze implements migrate.Source.
func (b *batch) Freeze(context.Context) (err error) {
	b.keys, err = b.conns.freeze(b.some)
	kernel.Quiesce()
	return err
}

// Export implements migrate.Source.
func (b *batch) Export(context.Context) (flows []conntrack.Flow, err error) {
	b.ids = map[conntrack.Flow]uint64{}
	for id, one := range b.some {
		if !one.unnamed {
			f := one.flow()
			b.ids[*f] = id
			flows = append(flows, *f)
		}
	}
	return flows, nil
}

// Release implements migrate.Source.
func (b *batch) Release(context.Context, []conntrack.Flow) error {
	for _, one := range b.some {
		if err := one.forget(); err != nil && !noConntrack(err) {
			return err
		}
	}
	return nil
}

// Thaw implements migrate.Source.
func (b *batch) Thaw(_ context.Context, moved bool, stays []conntrack.Flow) error {
	if !moved {
		return b.conns.thaw()
	}
	kept := map[uint64]bool{}
	for _, f := range stays {
		kept[b.ids[f]] = true
	}
	for key, id := range b.keys {
		if kept[id] {
			continue
		}
		if err := b.conns.m.Remove(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return errors.Join(fmt.Errorf("delete connection: %w", err), b.conns.thaw())
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return b.conns.thaw()
}

// freeze has the programs drop what comes of connections, and lists all entries,
// with the connection that each is of.
func (t *connTable) freeze(some map[uint64]translation) (keys map[tcTuple]uint64, err error) {
	held := map[tcTuple]tcConn{}
	keys = map[tcTuple]uint64{}
	err = t.each(func(key *tcTuple, e *tcConn) {
		if _, ok := some[e.Id]; !ok {
			return
		}
		keys[*key] = e.Id
		if key.Proto != unix.IPPROTO_UDP {
			e.Flags |= connFrozen
			held[*key] = *e
		}
	})
	if err == nil {
		err = t.rewrite(held)
	}
	return keys, err
}

// thaw lets packets of connections pass that are held: their handover failed, or
// a process was killed in it.
func (t *connTable) thaw() error {
	held := map[tcTuple]tcConn{}
	err := t.each(func(key *tcTuple, e *tcConn) {
		if e.Flags&connFrozen != 0 {
			e.Flags &^= connFrozen
			held[*key] = *e
		}
	})
	if err == nil {
		err = t.rewrite(held)
	}
	if err != nil {
		return fmt.Errorf("let connections go on: %w", err)
	}
	return nil
}

// rewrite changes entries that are still there.
func (t *connTable) rewrite(entries map[tcTuple]tcConn) error {
	for key, e := range entries {
		if err := t.m.Update(&key, &e, ebpf.UpdateExist); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("write connection: %w", err)
		}
	}
	return nil
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
		if e.Flags&connNetfilters != 0 {
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
		case e.Flags&connUnnamed != 0:
			one.unnamed = true
		case e.Flags&connAnswer != 0:
		case e.Flags&connCounted != 0:
			one.client, one.frontend, one.backend = key.source(), key.destination(), e.To.destination()
			one.own, one.between = e.Flags&connOwn != 0, e.To.source()
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
