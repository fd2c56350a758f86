package ipvs

import (
	"context"
	"errors"
	"fmt"
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
	deadline *deadlines
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
		deadline:   openDeadlines(options.StateDir),
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

// sorted are the changes that make up the whole table, in an order that is the
// same in every process, as packet marks depend on it where two collide.
func sorted(t *model.Table) *model.Changes {
	changes := t.Since(nil)
	slices.SortFunc(changes.Frontends, func(a, b model.FrontendChange) int { return a.Key().Compare(b.Key()) })
	return changes
}

// Prepare sets what takes more than CAP_NET_ADMIN: see dataplane.Plane. That
// the node answers ARP only for addresses of the interface asked is among it,
// since nobody knows yet whether there will be addresses that need it.
func (p *Plane) Prepare(_ context.Context, what kernel.Preparation) error {
	if what != kernel.LessPrivilege {
		return nil
	}
	return errors.Join(p.settings.SetSysctls(p.settings.Sysctls), p.settings.QuietARP())
}

// Close gives up the plane's socket. What is in the kernel stays.
func (p *Plane) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orphans, p.deadline.closed = orphans{}, true // which whoever comes next finds
	if closer, ok := p.balancer.(interface{ Close() }); ok {
		closer.Close()
	}
	return p.sweeper.Close()
}
