package packet

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
)

// frozenAtOnce is how many connections change hands at a time. Packets of theirs that
// come meanwhile are dropped, to be sent again.
const frozenAtOnce = 1000

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
	frozen := map[tcTuple]tcConn{}
	keys = map[tcTuple]uint64{}
	err = t.each(func(key *tcTuple, e *tcConn) {
		if _, ok := some[e.Id]; !ok {
			return
		}
		keys[*key] = e.Id
		if key.Proto != unix.IPPROTO_UDP {
			e.Kind |= tcKindFROZEN
			frozen[*key] = *e
		}
	})
	if err == nil {
		err = t.rewrite(frozen)
	}
	return keys, err
}

// thaw lets packets of frozen connections pass: their handover failed, or
// a process was killed in it.
func (t *connTable) thaw() error {
	thawed := map[tcTuple]tcConn{}
	err := t.each(func(key *tcTuple, e *tcConn) {
		if e.Kind&tcKindFROZEN != 0 {
			e.Kind &^= tcKindFROZEN
			thawed[*key] = *e
		}
	})
	if err == nil {
		err = t.rewrite(thawed)
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
