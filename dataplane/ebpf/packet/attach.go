package packet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Attach makes the programs of this version run at all interfaces, and begins
// to follow them.
func (p *Path) Attach(s *maps.Store, want *model.Table) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings, p.table = want.Settings, want
	if p.attacher == nil {
		if err := p.start(s); err != nil {
			return err
		}
	}
	if err := p.enter(want); err != nil {
		return err
	}
	if p.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		p.stop = stop
		if err := p.follow(ctx); err != nil {
			stop()
			p.stop = nil
			return err
		}
	}
	return nil
}

// enter attaches the programs wherever they aren't yet.
func (p *Path) enter(want *model.Table) error {
	if err := keepSources(); err != nil {
		return err
	}
	live, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	running, err := p.attacher.running(live)
	if err != nil {
		return err
	}
	now, err := p.phase.get()
	if err != nil {
		return err
	}
	if running && now == inForce {
		return errors.Join(p.syncAll(), p.logAhead(live))
	}
	if err := p.takeOver(want); err != nil { // or an earlier process was killed while it did that
		return fmt.Errorf("take over: %w", err)
	}
	return p.logAhead(live)
}

// Load implements path. The programs for tunnels follow when there is one.
func (p *Path) Load(s *maps.Store) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store = s
	if err := p.need("egress", "ingress", "loopback"); err != nil {
		return err
	}
	// Loaded by itself it has a map works of its own. It may be interrupted by packets.
	if err := p.need("collect"); err != nil {
		return err
	}
	p.links = s.Maps[tcMapLinks]
	p.drivers.mu.Lock()
	p.drivers.sent = s.Maps[tcMapDriven]
	p.drivers.mu.Unlock()
	if p.conns == nil {
		var err error
		if p.conns, err = openConns(s, p.spec.Maps); err != nil {
			return err
		}
	}
	p.conns.collect = p.programs["collect"]
	p.phase = phase{s.Maps[tcMapPhase]}
	if p.endCollecting == nil {
		ctx, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { p.collect(ctx) })
		p.endCollecting = func() { cancel(); done.Wait() }
	}
	return nil
}

// start finds out about the node what attach needs to know.
func (p *Path) start(s *maps.Store) (err error) {
	if p.keeping, err = conntrack.KeepsTranslating(keeper); err != nil {
		return err
	}
	p.attacher, err = p.newAttacher(s.Dir)
	return err
}
