package sock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/model"
)

// When this mode takes the ipvs mode's place, IPVS remembers connections for two
// minutes after their end. It takes an endpoint's answers to a socket that is connected
// to it directly for those of a connection that it has forwarded from the same port, and
// puts the frontend's address into them, which the socket doesn't know. Therefore TCP sockets
// stand by as long as IPVS serves frontends: those of pods are served by the packet
// path, in which the frontend's address is what clients wait for, and those of the node
// by IPVS, until it is removed, and then by the packet path, too. (UDP sockets don't,
// since the packet path would remember their flows, too, and knows no end of them.)

// awaitEvery is how often it is looked whether IPVS has gone.
const awaitEvery = 100 * time.Millisecond

// tcpDeferral is what sockets wait for.
type tcpDeferral struct {
	table atomic.Pointer[model.Table]
	stop  func() // ends what waits; nil if nothing does
}

// deferTCP has sockets stand by if these are the first programs on a node that IPVS
// serves, or if an earlier process was killed while they did.
func (p *Path) deferTCP(s *maps.Store, want *model.Table) error {
	m := s.Maps[sockMapDeferTcp]
	var now uint32
	if err := m.Lookup(uint32(0), &now); err != nil {
		return fmt.Errorf("read map defer_tcp: %w", err)
	}
	p.deferral.table.Store(want)
	if now == 0 {
		if running, err := p.running(s.Dir); running || err != nil {
			return err
		}
	}
	serves, err := migrate.IPVSServes(want)
	if err != nil {
		return err
	}
	set := func(now uint32) error {
		if err := m.Put(uint32(0), now); err != nil {
			return fmt.Errorf("write map defer_tcp: %w", err)
		}
		return nil
	}
	if !serves {
		return set(0)
	}
	if err := set(1); err != nil || p.deferral.stop != nil {
		return err
	}
	p.deferral.await(func() error { return set(0) })
	return nil
}

// await has something done when IPVS serves no frontends any more.
func (b *tcpDeferral) await(then func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		tick := time.NewTicker(awaitEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			serves, err := migrate.IPVSServes(b.table.Load())
			if err == nil && serves {
				continue
			}
			if err := errors.Join(err, then()); err != nil {
				slog.Warn("sockets are served at the interfaces", "error", err)
			}
			return
		}
	}()
}

// end ends the waiting.
func (b *tcpDeferral) end() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}
