package ipvs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// Plane programs IPVS, ipsets, iptables and the interface kube-ipvs0 in the
// network namespace in which it was made.
type Plane struct {
	options  kernel.Options
	sweeper  conntrack.Sweeper
	expand   model.Expansion
	balancer lvs.Balancer
	sets     *ipset.Socket
	dummy    *dummy
	iptables *iptables.Tool
	choose   chooser
	settings *lvs.SettingsKeeper

	mu       sync.Mutex // the methods' against the reaper's
	state    *state     // what the kernel holds; nil if that isn't known
	services map[lvs.ServerID]lvs.Service
	orphans  orphans
	reaping  bool
	alone    bool // the other variant of iptables holds nothing of this mode
	// background starts what goes on beside the methods; tests don't.
	background func(work func())
	bypasses   uint32 // how many there were

	// For Read, which others call:
	inForce  atomic.Pointer[model.Table]
	counters counters
	open     func() (lvs.Balancer, error) // another socket
}

// New makes a plane for this process's network namespace. A MissingError says
// what this machine unsupported, ip_vs first.
func New(options kernel.Options) (*Plane, error) {
	b, err := lvs.Open()
	if err != nil {
		return nil, err
	}
	return newPlane(options, b)
}

func newPlane(options kernel.Options, b lvs.Balancer) (*Plane, error) {
	options, err := complete(options)
	if err != nil {
		return nil, err
	}
	sets, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	if err := sets.Probe(); err != nil {
		return nil, fmt.Errorf("look for ipsets: %w", err)
	}
	d, err := openDummy()
	if err != nil {
		return nil, err
	}
	tool, err := iptables.Find(context.Background(), options.IPTablesVariant)
	if err != nil {
		return nil, err
	}
	return &Plane{
		options: options, sweeper: conntrack.Sweeper{Later: options.SweepLater, Tell: options.Swept}, balancer: b, sets: sets, dummy: d, iptables: tool,
		choose:   newChooser(options),
		settings: lvs.NewSettingsKeeper(options, b),
		services: map[lvs.ServerID]lvs.Service{}, orphans: orphans{},
		background: func(work func()) { go work() },
		open:       lvs.Open,
	}, nil
}

// complete fills in defaults and checks what is given.
func complete(o kernel.Options) (kernel.Options, error) {
	if o.MasqueradeMark == 0 {
		o.MasqueradeMark = defaultMasqueradeMark
	}
	if o.MasqueradeMark&(o.MasqueradeMark-1) != 0 || o.MasqueradeMark >= bypassBit || o.MasqueradeMark < firstPoolMark {
		return o, fmt.Errorf("masquerade mark %#x: must be one bit between %#x and %#x in mode ipvs", o.MasqueradeMark, firstPoolMark, bypassBit>>1)
	}
	o.StateDir = o.StateDirectory()
	if s := model.Scheduler(o.Scheduler); s != model.DefaultScheduler && s != model.Random && !slices.Contains(schedulers, s) {
		return o, fmt.Errorf("scheduler %q: must be one of %v", o.Scheduler, schedulers)
	}
	return o, nil
}

func newChooser(o kernel.Options) chooser {
	return chooser{preferred: model.Scheduler(o.Scheduler), missing: map[model.Scheduler]bool{}}
}

// Apply makes the kernel agree with want; see dataplane.Plane.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	return kernel.Result{}, p.apply(ctx, want, verify != kernel.VerifyNothing)
}

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{Objects: p.objects, Frontends: p.frontendCounts, Packets: p.packetCounts, Connections: conntrack.ConnectionsTo}.Read(ctx, what)
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

// sorted are the changes that make up the whole table, in an order that is the
// same in every process, as packet marks depend on it where two collide.
func sorted(t *model.Table) *model.Changes {
	changes := t.Since(nil)
	slices.SortFunc(changes.Frontends, func(a, b model.FrontendChange) int { return a.Key().Compare(b.Key()) })
	return changes
}

// Unsupported lists what the plane does not do on this machine.
func (p *Plane) Unsupported() []kernel.Unsupported {
	p.mu.Lock()
	defer p.mu.Unlock()
	unsupported := []kernel.Unsupported{
		{Feature: kernel.Scheduling, Value: string(model.Random), Why: "IPVS has no random scheduler; round robin is used"},
		{Feature: kernel.LocalhostNodePort, Why: "IPVS sends nothing from a loopback address to another machine"},
		{Feature: kernel.SharedClientPort, Why: "IPVS knows a backend's answers by the client's address and port alone; they go the way of the connection that was opened last"},
		{Feature: kernel.DirectReturn, Why: "IPVS' own direct routing can't change ports, and endpoints would need the Service's address; external traffic is masqueraded"},
		{Feature: kernel.StableFlows, Why: "only the node where a connection began can translate it; at another one the client is reset"},
	}
	for _, s := range slices.Sorted(maps.Keys(p.choose.missing)) {
		unsupported = append(unsupported, kernel.Unsupported{
			Feature: kernel.Scheduling, Value: string(s),
			Why: "this kernel has no module ip_vs_" + string(s) + "; round robin is used",
		})
	}
	return unsupported
}
