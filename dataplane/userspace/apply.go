package userspace

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Apply implements dataplane.Plane. Routes come before listeners, which need
// them, and go after them. A listener that can't be opened, because another
// process has the port, is left out; all else is done.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	p.watchDrift()
	want = p.expand.Of(want)
	result, err := p.apply(ctx, want, verify != kernel.VerifyNothing)
	if errors.Is(err, errBroken) && ctx.Err() == nil {
		result, err = p.apply(ctx, want, true) // by a new relay
	}
	return result, err
}

func (p *Plane) apply(ctx context.Context, want *model.Table, verify bool) (result kernel.Result, err error) {
	if err := errors.Join(p.connect(ctx), p.steps.At("relay runs")); err != nil {
		return result, err
	}
	old := p.last
	if verify {
		old = nil
	}
	p.last = nil // until all of this is done
	if old == nil && p.notTransparent() == nil {
		if err := errors.Join(makeReturnPath(), p.steps.At("return path made")); err != nil {
			return result, err
		}
	}
	missing, superfluous, err := p.routeChanges(old, want)
	if err != nil {
		return result, err
	}
	for prefix := range missing {
		err := addRoute(prefix)
		if noFamily(err) {
			err = nil // no packet of the family gets here; the next comparison tries again
		}
		if err := errors.Join(err, p.steps.At("route added")); err != nil {
			return result, err
		}
	}
	if len(missing) > 0 {
		p.watchRoutes(routesFor(want))
	}
	answer, failed := p.relay.ask(ctx, request{Op: opApply, Delta: want.Delta(old), Transparent: p.notTransparent() == nil})
	if errors.Is(failed, errBroken) {
		discard(p.relay.conn.Close())
		p.relay = nil
		return result, failed
	}
	for _, u := range answer.Unopened {
		result.LeftOut = append(result.LeftOut, kernel.LeftOut{Frontend: u.Key, Why: errors.New(u.Why)})
	}
	if err := p.steps.At("relay told"); err != nil {
		return result, errors.Join(failed, err)
	}
	for prefix := range superfluous {
		if err := errors.Join(deleteRoute(prefix), p.steps.At("route deleted")); err != nil {
			return result, errors.Join(failed, err)
		}
	}
	if failed == nil {
		p.last = want
		failed = p.sweep(ctx, want)
	}
	return result, failed
}

// sweep sees to flows that another plane has translated, which conntrack goes on
// with as long as they last.
func (p *Plane) sweep(ctx context.Context, want *model.Table) error {
	if p.notTransparent() != nil {
		return nil // without nf_tables, nobody has
	}
	sweep := conntrack.Plan(p.swept, want, want.Since(p.swept))
	if _, err := sweep.Run(ctx); err != nil {
		return fmt.Errorf("bring connections into line: %w", err)
	}
	p.swept = want
	return nil
}

// routeChanges tells which routes are to be added and which deleted. Without an
// old table it asks the kernel what there is.
func (p *Plane) routeChanges(old, want *model.Table) (missing, superfluous routeSet, err error) {
	if old != nil {
		if c := want.Since(old); !c.Settings && len(c.Frontends) == 0 {
			return nil, nil, nil
		}
	}
	need := routesFor(want)
	have := p.routes
	if old == nil {
		if have, err = readRoutes(); err != nil {
			return nil, nil, err
		}
	}
	missing, superfluous = need.without(have), have.without(need)
	p.watchRoutes(need.without(missing)) // those to come are watched when they are there
	return missing, superfluous, nil
}
