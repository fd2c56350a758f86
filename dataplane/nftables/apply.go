package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Apply makes the kernel agree with want: see dataplane.Plane.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	return kernel.Result{}, p.apply(ctx, want, verify)
}

func (p *Plane) apply(ctx context.Context, want *model.Table, verify kernel.Verification) error {
	want = p.expand.Of(want)
	compare, verified := verify == kernel.VerifyAll, verify != kernel.VerifyNothing
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.startWatch(); err != nil {
		return err
	}
	first := p.state == nil
	if err := p.program(want, compare, verified); err != nil {
		p.state = nil
		return err
	}
	p.applied = want
	if first || verified { // a kube-proxy that is about to end may have put it back
		if err := p.removeKubeProxy(); err != nil {
			return err
		}
	}
	sweep := conntrack.Plan(p.swept, want, want.Since(p.swept))
	if err := p.sweeper.Run(ctx, sweep); err != nil {
		return fmt.Errorf("bring connections into line: %w", err)
	}
	p.swept = want
	return nil
}

func (p *Plane) program(want *model.Table, compare, verified bool) error {
	if p.state == nil || compare {
		if err := p.compare(want); err != nil {
			return err
		}
	} else if err := p.change(want); err != nil {
		return err
	}
	p.loopback.Store(p.state.loopbacks > 0)
	// The filter-prerouting chain drops what this would let others send to
	// 127.0.0.0/8.
	return p.localnet.Keep(p.state.loopbacks > 0 && !p.noLocalnet, verified)
}

// change does what is different between the last table and want.
func (p *Plane) change(want *model.Table) error {
	changes := want.Since(p.applied)
	if changes.Empty() {
		return nil
	}
	plan := p.state.change(p.applied, want, changes)
	b := p.socket.newBatch()
	b.addChains(plan.chains)
	b.write(plan)
	return explain(p.commitChange(b))
}

// compare reads the kernel's table, adopts its numbers, and writes what is
// missing or wrong. If somebody changes nf_tables between, it begins again.
func (p *Plane) compare(want *model.Table) error {
	p.cache.forget()
	for range maxReadings {
		c, err := p.socket.read()
		if err != nil {
			return err
		}
		b := p.difference(c, want)
		err = p.commitQuietly(b, c.generation)
		if err == nil {
			p.cache.read(c.generation, b)
		}
		if err == nil || !errors.Is(err, unix.ERESTART) {
			return explain(err)
		}
	}
	c, err := p.socket.read()
	if err != nil {
		return err
	}
	return explain(p.commitQuietly(p.difference(c, want), 0))
}

// difference makes the state for a table over what the kernel holds, and the
// transaction that brings the kernel there.
func (p *Plane) difference(c *contents, want *model.Table) *batch {
	b := p.socket.newBatch()
	var t *target
	if c.usable() {
		adopted, next := c.adopt()
		t = p.build(want, adopted, next)
		b.repair(c, t)
	} else {
		t = p.build(want, nil, 1)
		b.replaceAll(c, t)
	}
	p.state = t.state
	return b
}

// build is build for what this machine can do.
func (p *Plane) build(want *model.Table, adopted map[string]adoptedPool, next uint32) *target {
	t := build(want, p.options, adopted, next)
	t.state.noLocalnet = p.noLocalnet
	return t
}
