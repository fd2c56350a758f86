package iptables

import (
	"context"
	"strconv"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Check implements dataplane.Checker: it makes the plan of a comparison and looks
// what is in it. Chains that others refer to are never deleted, so they differ.
func (p *Plane) Check(ctx context.Context, of *model.Table) (kernel.Differences, error) {
	var found kernel.Differences
	for _, f := range iptables.Families() {
		if f == iptables.IPv6 && p.noIPv6 != nil {
			continue
		}
		there, err := p.read(ctx, f)
		if err != nil {
			return found, err
		}
		want := newState(f, mark(p.options), of.Settings)
		want.limits = p.limits
		todo := want.replace(of, there.ours)
		for _, step := range []delta{todo.refusals, todo.nat, todo.rest} {
			for id := range step {
				found.Add(f.String(), id.table, id.name, strconv.FormatUint(there.ours[id], 16), strconv.FormatUint(want.chains[id], 16))
			}
		}
		for _, j := range append(there.missing(jumps()), there.stale(jumps())...) {
			found.Add(f.String(), j.table, j.chain, j.rule)
		}
	}
	return found, nil
}

// ApplyChecked implements dataplane.Checker.
func (p *Plane) ApplyChecked(ctx context.Context, want *model.Table) error {
	if err := p.Apply(ctx, want, false); err != nil {
		return err
	}
	return p.localnet.Keep(p.states[iptables.IPv4].loopbacks > 0, true)
}
