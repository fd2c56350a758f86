// Package iptables is the plane of rules for iptables, both variants, in the
// form that operators know from kube-proxy: KUBE-SERVICES leads to a chain for
// each Service port (KUBE-SVC-…), and that to one for each backend (KUBE-SEP-…).
//
// Unlike there, KUBE-SERVICES isn't a list of all Services. It leads to small
// chains by ever longer prefixes of the destination (see [tree]), so that what
// belongs to no Service passes a handful of rules, and what does passes a
// number that grows with the logarithm of the number of Services. A change
// rewrites the chains it concerns, and nothing is read back in steady state.
//
// The nft variant has a cost that this package can't avoid: at every commit the
// kernel walks through all rules that packets can reach (nft_table_validate), 0.3 s at 10,000
// Services with five endpoints each.
//
// Session affinity (xt_recent) remembers the last 100 clients of an endpoint,
// unless the module is told otherwise, see [rememberedClients].
package iptables

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/routelocalnet"
	"github.com/fairway-net/fairway/model"
)

// defaultMark is kube-proxy's mark for packets to be masqueraded.
const defaultMark = 0x4000

// Plane programs iptables in the network namespace of the calling thread.
type Plane struct {
	options     kernel.Options
	sweeper     conntrack.Sweeper
	expand      model.Expansion
	tool        *iptables.Tool
	unsupported []kernel.Unsupported
	noIPv6      error // why ip6tables can't be used here; nil if it can
	limits      limits

	localnet *routelocalnet.Keeper
	alone    bool // the other variant holds nothing of this mode
	cutOff   bool // the last Apply found rules that lead to the chains missing

	// For Read, which others call:
	counts   atomic.Pointer[[]kernel.RuleCount]
	tell     atomic.Pointer[map[iptables.Family]*counterChains]
	inForce  atomic.Pointer[model.Table]
	counters counters

	applied *model.Table // nil if it isn't known what the kernel holds
	states  map[iptables.Family]*state
	cache   generationCache
}

// applyRequest is what one Apply is asked for, and what it starts from.
type applyRequest struct {
	want    *model.Table
	changes *model.Changes
	verify  bool
	reads   bool // what the kernel has, since not all of it is known
}

// New makes a plane that uses the iptables variant found on this machine. It
// changes nothing.
func New(o kernel.Options) (*Plane, error) {
	ctx := context.Background()
	tool, err := iptables.Find(ctx, o.IPTablesVariant)
	if err != nil {
		return nil, fmt.Errorf("find iptables: %w", err)
	}
	p := &Plane{
		options: o, sweeper: conntrack.Sweeper{Later: o.SweepLater, Tell: o.Swept}, tool: tool, states: map[iptables.Family]*state{},
		localnet: routelocalnet.New(o.StateDirectory(), "iptables"),
	}
	if err := probe(ctx, tool, iptables.IPv4); err != nil {
		return nil, fmt.Errorf("probe iptables (%s): %w", tool.Variant(), err)
	}
	if err := probe(ctx, tool, iptables.IPv6); kernel.IsMissing(err) {
		p.noIPv6 = err
	} else if err != nil {
		return nil, fmt.Errorf("probe ip6tables (%s): %w", tool.Variant(), err)
	}
	p.limits, p.unsupported = unsupported(ctx, tool)
	return p, nil
}

// Variant tells which iptables is used.
func (p *Plane) Variant() string { return string(p.tool.Variant()) }

func mark(o kernel.Options) uint32 {
	if o.MasqueradeMark != 0 {
		return o.MasqueradeMark
	}
	return defaultMark
}

// Apply makes the kernel's chains those of the table.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	known := p.applied != nil
	p.cutOff = false
	err := p.apply(ctx, want, verify != kernel.VerifyNothing)
	return kernel.Result{Repaired: known && p.cutOff && err == nil}, err
}

// Prepare implements dataplane.Plane. There is nothing to prepare.
func (p *Plane) Prepare(context.Context, kernel.Preparation) error { return nil }

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{Objects: p.objects, Frontends: p.frontendCounts, Packets: p.packetCounts, Connections: conntrack.ConnectionsTo}.Read(ctx, what)
}

// Close implements dataplane.Plane.
func (p *Plane) Close() error { return p.sweeper.Close() }

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

// Unsupported lists what this plane doesn't do.
func (p *Plane) Unsupported() []kernel.Unsupported { return p.unsupported }

// Connections implements dataplane.Plane: conntrack has them all.
func (p *Plane) Connections() migrate.Connections { return nil }
