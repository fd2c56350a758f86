package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/model"
)

// orphansKept is how much longer than the longest connection may be silent the
// gone backends of pools are remembered, in seconds.
const orphansKept = tcpEstablished + 60*60

// noteOrphans tells the programs which backends' TCP connections are to be reset
// from when on, since they are gone from a pool. id is the pool's number, before
// the change if it is removed.
func (p *packetPath) noteOrphans(c model.PoolChange, id uint32) error {
	if c.ID().Proto != model.TCP {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.orphans == nil {
		return nil // no connections yet
	}
	back := model.PoolChange{Old: c.New, New: c.Old}.Gone()
	for _, b := range back {
		if err := p.orphans.Delete(memberOf(id, b.AddrPort())); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete orphans of %s: %w", c.ID(), err)
		}
	}
	policy := c.New
	if policy == nil {
		policy = c.Old
	}
	if policy.Orphans == model.OrphansKeep {
		return nil
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	since := uint64(now) * uint64(time.Second)
	if policy.Orphans == model.OrphansDeadline {
		since += uint64(policy.OrphanDeadline)
	}
	for _, b := range c.Gone() {
		if err := p.orphans.Put(memberOf(id, b.AddrPort()), since); err != nil {
			return fmt.Errorf("note orphans of %s: %w", c.ID(), err)
		}
	}
	return nil
}

func memberOf(pool uint32, to netip.AddrPort) *tcMemberKey {
	k := &tcMemberKey{Pool: pool}
	raw := to.Addr().As16()
	for i := range k.To.Addr.Word {
		k.To.Addr.Word[i] = native32(raw[4*i:])
	}
	k.To.Port = bigEndian16(to.Port())
	return k
}

func bigEndian16(n uint16) uint16 { return n<<8 | n>>8 }

// sweepOrphans forgets backends that no connection can have any more.
func (t *connTable) sweepOrphans(now uint32) error {
	var key tcMemberKey
	var since uint64
	var old []tcMemberKey
	all := t.orphans.Iterate()
	for all.Next(&key, &since) {
		if uint64(now) > since/uint64(time.Second)+orphansKept {
			old = append(old, key)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read orphans: %w", err)
	}
	for i := range old {
		if err := t.orphans.Delete(&old[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete orphans: %w", err)
		}
	}
	return nil
}
