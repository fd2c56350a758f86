package ebpf

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/kernel"
)

// troubles are the reasons for which the programs drop packets that should have
// gone on, in the order of enum trouble of bpf/conn.h.
var troubles = []string{"table_full", "no_port", "not_written", "no_route", "not_learnt", "changes_hands", "forgotten", "lost_fragment"}

// Drops implements dataplane.Dropper.
func (p *Plane) Drops(ctx context.Context) (list []kernel.Drop, err error) {
	m, err := openIfThere(p.dir, tcMapTroubles)
	if err != nil || m == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for i, reason := range troubles {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := sumOf(m, uint32(i))
		if err != nil {
			return nil, fmt.Errorf("read map troubles: %w", err)
		}
		list = append(list, kernel.Drop{Reason: reason, Packets: n})
	}
	return list, nil
}

// overflows says if maps that programs fill have been full since it last said so.
func (p *Plane) overflows() error {
	var errs []error
	for counter, what := range map[string]string{"overflow": "the eBPF map sockets", "troubles": "the eBPF map conns"} {
		sum, err := sumOf(p.store.maps[counter], 0) // of troubles: TABLE_FULL
		if err != nil {
			return fmt.Errorf("read map %s: %w", counter, err)
		}
		if last, known := p.full[counter]; known && sum > last {
			errs = append(errs, &kernel.FullError{What: what, LeftOut: int(sum - last)})
		}
		if p.full == nil {
			p.full = map[string]uint64{}
		}
		p.full[counter] = sum
	}
	return errors.Join(errs...)
}

// sumOf is what all processors have counted in a place of a map.
func sumOf(m *ebpf.Map, place uint32) (sum uint64, err error) {
	var each []uint64
	if err := m.Lookup(place, &each); err != nil {
		return 0, err
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}
