package iptables

import (
	"context"
	"fmt"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Apply makes the kernel's chains those of the table.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	known := p.applied != nil
	p.cutOff = false
	err := p.apply(ctx, want, verify != kernel.VerifyNothing)
	return kernel.Result{Repaired: known && p.cutOff && err == nil}, err
}

func (p *Plane) apply(ctx context.Context, want *model.Table, verify bool) error {
	want = p.expand.Of(want)
	before := p.applied
	changes := want.Since(before)
	if before != nil && !verify && changes.Empty() {
		p.applied = want
		return nil
	}
	p.applied = nil // not known until all is done
	undisturbed, err := p.cache.begin(p.tool)
	if err != nil {
		return err
	}
	r := applyRequest{want: want, changes: changes, verify: verify, reads: before == nil || verify && !undisturbed}
	written := map[iptables.Family]*plan{}
	for _, f := range iptables.Families() {
		if f == iptables.IPv6 && p.noIPv6 != nil {
			if hasIPv6(want) {
				return fmt.Errorf("program IPv6: %w", p.noIPv6)
			}
			continue
		}
		todo, err := p.applyFamily(ctx, f, r)
		if err != nil {
			return err
		}
		written[f] = todo
	}
	p.count(written)
	p.publish()
	p.inForce.Store(want)
	if err := p.clearOthers(ctx); err != nil {
		return err
	}
	sweep := conntrack.Plan(before, want, changes)
	if err := p.sweeper.Run(ctx, sweep); err != nil {
		return fmt.Errorf("forget stale flows: %w", err)
	}
	if r.reads || undisturbed {
		if err := p.cache.end(p.tool, r.reads); err != nil {
			return err
		}
	}
	p.applied = want
	return nil
}

// applyRequest is what one Apply is asked for, and what it starts from.
type applyRequest struct {
	want    *model.Table
	changes *model.Changes
	verify  bool
	reads   bool // what the kernel has, since not all of it is known
}

// clearOthers removes what the other variant holds of this mode, once this one is
// complete: an earlier process, or kube-proxy, went by that one.
func (p *Plane) clearOthers(ctx context.Context) error {
	for _, v := range iptables.Variants() {
		if p.alone || v == p.tool.Variant() {
			continue
		}
		other, err := iptables.Open(ctx, v)
		if err == nil {
			err = removeAll(ctx, other)
		}
		if err != nil && !kernel.IsAbsent(err) { // what can't be read can't be there
			return fmt.Errorf("remove rules of iptables (%s): %w", v, err)
		}
	}
	p.alone = true
	return nil
}
