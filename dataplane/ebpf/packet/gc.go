package packet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// GC marks the TCP connections that have lost their backend, if their pool
// wants them reset: the programs do that when it's time. UDP flows need nothing:
// the programs ask with every packet whether the backend is still there.
func (p *Path) GC(_ context.Context, s *maps.Store, c program.Transition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table = c.Want
	plan := conntrack.Plan(c.Old, c.Want, c.Want.Since(c.Old))
	if plan == nil || !slices.Contains(plan.Protocols(), model.TCP) {
		return nil
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	marks, renewed := map[tcTuple]tcOrphan{}, map[tcTuple]bool{}
	err = p.conns.each(func(key *tcTuple, e *tcConn) {
		if !e.has(tcTraitsHOLDS) || model.Protocol(key.Proto) != model.TCP {
			return
		}
		fate := plan.Fate(&conntrack.Flow{
			Proto: model.TCP, Client: key.source(), Frontend: key.destination(), Backend: e.To.destination(), Replied: true,
		})
		if fate.Forget || fate.Expire > 0 {
			marks[*key] = tcOrphan{Id: e.Id, Since: uint64(now)*uint64(time.Second) + uint64(fate.Expire)}
			renewed[*key] = c.Old != nil && c.Old.Keeps(c.Old.Lookup(keyOf(key.destination(), model.TCP)), e.To.destination())
		}
	})
	if err != nil {
		return err
	}
	return p.conns.mark(marks, renewed)
}

// mark notes orphans. Those that have a deadline keep it, but for those whose backend was
// back since. What finds no room isn't reset yet.
func (t *connTable) mark(marks map[tcTuple]tcOrphan, renewed map[tcTuple]bool) error {
	leftOut := 0
	for key, o := range marks {
		var have tcOrphan
		err := t.orphans.Lookup(&key, &have)
		if err == nil && have.Id == o.Id && have.Since <= o.Since && !renewed[key] {
			continue
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read orphan: %w", err)
		}
		err = t.orphans.Put(&key, &o)
		if errors.Is(err, unix.E2BIG) {
			leftOut++
			continue
		}
		if err != nil {
			return fmt.Errorf("note orphan: %w", err)
		}
	}
	if leftOut > 0 {
		return &kernel.FullError{What: "the eBPF map orphans", LeftOut: leftOut}
	}
	return nil
}

// collectOrphans forgets those whose connection is no more.
func (t *connTable) collectOrphans() error {
	var key tcTuple
	var o tcOrphan
	var old []tcTuple
	all := t.orphans.Iterate()
	for all.Next(&key, &o) {
		var e tcConn
		err := t.m.Lookup(&key, &e)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read connection: %w", err)
		}
		if err != nil || e.Id != o.Id {
			old = append(old, key)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read orphans: %w", err)
	}
	for i := range old {
		if err := t.orphans.Delete(&old[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete orphan: %w", err)
		}
	}
	return nil
}

func (t *tcTuple) source() netip.AddrPort      { return addrPort(t.Src.Word, t.Sport) }
func (t *tcTuple) destination() netip.AddrPort { return addrPort(t.Dst.Word, t.Dport) }

// addrPort reads an address and a port as they are in packets.
func addrPort(words [4]uint32, port uint16) netip.AddrPort {
	var raw [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(raw[4*i:], w)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(raw).Unmap(), port<<8|port>>8)
}
