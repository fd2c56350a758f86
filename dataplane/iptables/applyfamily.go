package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

func (p *Plane) applyFamily(ctx context.Context, f iptables.Family, r applyRequest) (*plan, error) {
	todo, err := p.plan(ctx, f, r)
	if err != nil {
		return nil, err
	}
	if f == iptables.IPv4 {
		if err := p.localnet.Keep(p.states[f].loopbacks > 0, r.verify || r.reads); err != nil {
			return nil, err
		}
	}
	for _, input := range todo.inputs(p.tool.Variant()) {
		if err := p.tool.Restore(ctx, f, input); err != nil {
			return nil, fmt.Errorf("program %s: %w", f, err)
		}
		p.cache.commits += iptables.Commits(input)
	}
	return todo, nil
}

// plan brings the family's state to the table and tells what there is to do.
func (p *Plane) plan(ctx context.Context, f iptables.Family, r applyRequest) (*plan, error) {
	if !r.reads && !r.changes.Settings {
		return p.states[f].change(r.want, r.changes), nil
	}
	next := newState(f, mark(p.options), r.want.Settings)
	next.limits = p.limits
	if !r.reads {
		todo := next.replace(r.want, p.states[f].all())
		p.states[f] = next
		return todo, nil
	}
	delete(p.states, f) // what it held makes room; a failure leads here again
	there, err := p.read(ctx, f)
	if err != nil {
		return nil, err
	}
	p.states[f] = next
	todo := next.replace(r.want, there.ours)
	todo.jumps, todo.stale = there.missing(jumps()), there.stale(jumps())
	p.cutOff = p.cutOff || len(todo.jumps) > 0
	todo.natFirst = there.sets || slices.ContainsFunc(todo.jumps, func(j jump) bool { return j.table == "nat" })
	return todo, p.keepReferred(ctx, f, there, todo)
}

// hasIPv6 reports whether a table asks for anything of IPv6.
func hasIPv6(t *model.Table) bool {
	for _, prefix := range t.Settings.Reserved {
		if prefix.Addr().Is6() {
			return true
		}
	}
	for f := range t.Frontends() {
		if f.Addr.Is6() && !f.Addr.IsLoopback() {
			return true
		}
	}
	return false
}

// probe finds out whether the kernel has what the rules use, without
// installing any.
func probe(ctx context.Context, tool *iptables.Tool, f iptables.Family) error {
	s := newState(f, defaultMark, &model.Settings{})
	var in iptables.Input
	nat := in.Block("nat")
	nat.Chain(markMasqChain,
		"-m addrtype --src-type LOCAL -m comment --comment probe -j MARK --set-xmark 0x4000/0x4000",
		"-m statistic --mode random --probability 0.50000000000 -j RETURN",
		"-m recent --rcheck --seconds 1 --reap --name KUBE-PROBE --rsource -j RETURN")
	filter := in.Block("filter")
	filter.Chain(invalidChain, append(s.refuseAll(), "-m conntrack --ctstate INVALID -j DROP", "-m mark --mark 0x4000/0x4000 -j RETURN")...)
	return tool.Test(ctx, f, in.Bytes())
}
