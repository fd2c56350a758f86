package iptables

import (
	"context"
	"fmt"
	"sync/atomic"

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

// Prepare implements dataplane.Plane. There is nothing to prepare.
func (p *Plane) Prepare(context.Context, kernel.Preparation) error { return nil }

// Close implements dataplane.Plane.
func (p *Plane) Close() error { return p.sweeper.Close() }
