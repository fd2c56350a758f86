package ebpf

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Apply implements dataplane.Plane. The maps come before the programs that read
// them.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	var result kernel.Result
	p.inForce.Store(nil)
	err := result.Leave(p.apply(ctx, p.expand.Of(want), verify))
	if err == nil {
		p.inForce.Store(want)
	}
	return result, err
}

// apply gives a kernel.FullError for what has no room, after it has done the rest.
func (p *Plane) apply(ctx context.Context, want *model.Table, verify kernel.Verification) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.Prepare(ctx, kernel.BeforeTable); err != nil {
		return err
	}
	compare := verify == kernel.VerifyAll || p.state == nil
	attach := compare || verify != kernel.VerifyNothing || p.applied.Settings != want.Settings
	transition := program.Transition{Old: p.collected, Want: want, Verify: compare || verify != kernel.VerifyNothing}
	noRoom := p.program(want, compare, attach)
	if noRoom != nil && !kernel.IsFull(noRoom) {
		p.state = nil // the next Apply compares
		return noRoom
	}
	p.applied = want
	if err := p.steps.At("tables written"); err != nil {
		return err
	}
	if attach {
		p.linksLeftOut = nil
		for _, path := range p.paths {
			err := path.Attach(p.store, want)
			if err != nil && !kernel.IsFull(err) {
				p.state = nil
				return err
			}
			p.linksLeftOut = errors.Join(p.linksLeftOut, err)
		}
	}
	if err := p.steps.At("programs attached"); err != nil {
		return err
	}
	transition.RemovedBackends = p.state.RemovedBackends
	for _, path := range p.paths {
		if err := path.GC(ctx, p.store, transition); err != nil {
			return fmt.Errorf("bring connections into line: %w", err)
		}
	}
	p.collected, p.state.RemovedBackends = want, nil
	return errors.Join(noRoom, p.linksLeftOut, p.store.Overflows())
}

// program makes the tables say what want says: by comparing them, or by the difference
// from what was applied last. What is left out doesn't make the next change compare.
func (p *Plane) program(want *model.Table, compare, settings bool) (err error) {
	if compare {
		p.state, err = p.store.Compare(want, p.options.Scheduler)
		return err
	}
	plan, noID := p.state.Change(p.applied, want, want.Since(p.applied))
	noRoom := p.store.Write(plan, p.state)
	if noRoom != nil && !kernel.IsFull(noRoom) {
		return noRoom
	}
	if settings {
		if err := p.store.SetRanges(want.Settings.Reserved); err != nil {
			return err
		}
	}
	return errors.Join(noID, noRoom)
}
