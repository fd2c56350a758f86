package ipvs

import (
	"context"
	"fmt"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Apply makes the kernel agree with want; see dataplane.Plane.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	return kernel.Result{}, p.apply(ctx, want, verify != kernel.VerifyNothing)
}

func (p *Plane) apply(ctx context.Context, want *model.Table, verify bool) error {
	want = p.expand.Of(want)
	p.mu.Lock()
	defer p.mu.Unlock()
	var sweep *conntrack.Sweep
	var err error
	if p.state == nil || verify {
		var old *model.Table
		if p.state != nil {
			old = p.state.table
		}
		sweep = conntrack.Plan(old, want, want.Since(old))
		err = p.applyAll(ctx, want)
	} else {
		changes := want.Since(p.state.table)
		if changes.Empty() {
			return nil
		}
		sweep = conntrack.Plan(p.state.table, want, changes)
		if changes.Settings {
			err = p.applyAll(ctx, want)
		} else {
			err = p.run(ctx, p.state.move(want, changes), nil)
		}
	}
	if err != nil {
		p.state = nil
		return err
	}
	p.inForce.Store(want)
	p.deadline.forgetEarlier()
	p.saveDeadlines()
	p.reapSoon()
	if err := p.sweeper.Run(ctx, sweep); err != nil {
		p.state = nil
		return fmt.Errorf("forget stale flows: %w", err)
	}
	return nil
}

// applyAll compares everything with what the kernel holds.
func (p *Plane) applyAll(ctx context.Context, want *model.Table) error {
	next := newState(p.options.MasqueradeMark)
	plan := next.move(want, sorted(want))
	for _, e := range reservedEntries(want.Settings) {
		plan.put(e, ipset.Mark{})
	}
	if err := p.settings.Set(); err != nil {
		return err
	}
	if err := p.compare(plan, next, want.Settings); err != nil {
		return err
	}
	if err := p.run(ctx, plan, want.Settings); err != nil {
		return err
	}
	if err := p.clearOthers(ctx); err != nil {
		return err
	}
	p.state = next
	return nil
}
