package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Plane programs eBPF maps and keeps the programs where they belong. See
// dataplane.Plane for what its methods owe.
type Plane struct {
	options      kernel.Options
	expand       model.Expansion
	cgroupLimit  string     // why the cgroup hasn't all of the node's sockets; "" if nothing says so
	opening      sync.Mutex // for store and the paths' programs
	dir          string     // where everything is pinned
	sockets      *sock.Path
	packets      *packet.Path
	paths        []path // both of them
	steps        *kernel.Steps
	store        *maps.Store    // nil until the first Apply
	state        *program.State // nil if what the tables hold isn't known
	applied      *model.Table   // what the tables say
	collected    *model.Table   // what connections were brought into line with
	linksLeftOut error          // interfaces for which there is no room
	stopGrowing  func()         // ends the loop that enlarges maps; nil if there is none
}

// New makes the plane of the network namespace that this process lives in. It
// changes nothing.
func New(options kernel.Options) (*Plane, error) {
	if err := probe(); err != nil {
		return nil, err
	}
	cgroup, limit, err := sock.FindCgroup(options)
	if err != nil {
		return nil, err
	}
	netns, err := pins.NetnsCookie()
	if err != nil {
		return nil, err
	}
	dir, err := pins.NodeDir()
	if err != nil {
		return nil, err
	}
	sockets, err := sock.New(cgroup, netns)
	if err != nil {
		return nil, err
	}
	packets, err := packet.New(options.Drift)
	if err != nil {
		return nil, err
	}
	s := &kernel.Steps{}
	sockets.Steps, packets.Steps = s, s
	return &Plane{options: options, cgroupLimit: limit, dir: dir, sockets: sockets, packets: packets, paths: []path{sockets, packets}, steps: s}, nil
}

// Prepare implements dataplane.Plane: it opens or makes the maps, and has the
// kernel take the programs, which is a good part of the first Apply.
func (p *Plane) Prepare(ctx context.Context, what kernel.Preparation) error {
	if what != kernel.BeforeTable {
		return nil // it needs its privileges all the time
	}
	p.opening.Lock()
	defer p.opening.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.open(); err != nil {
		return err
	}
	var group errgroup.Group
	for _, path := range p.paths {
		group.Go(func() error { return path.Load(p.store) })
	}
	if err := errors.Join(group.Wait(), p.steps.At("programs loaded")); err != nil {
		return err
	}
	p.startGrowing() // connections are served since an earlier process's life
	return nil
}

// open is called with opening locked.
func (p *Plane) open() (err error) {
	if p.store != nil {
		return nil
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	if err := pins.MountBPFFS(); err != nil {
		return err
	}
	if err := pins.RemoveDead(); err != nil {
		return err
	}
	var specs []*ebpf.CollectionSpec
	for _, path := range p.paths {
		specs = append(specs, path.Spec())
	}
	p.store, err = maps.Open(p.dir, specs...)
	return err
}

// startGrowing begins to enlarge the maps that the programs fill, as they need it.
func (p *Plane) startGrowing() {
	if p.stopGrowing != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.store.GrowLoop(ctx) })
	p.stopGrowing = func() { cancel(); done.Wait() }
}

func (p *Plane) endGrowing() {
	if p.stopGrowing != nil {
		p.stopGrowing()
		p.stopGrowing = nil
	}
}

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{
		Objects: p.objects, Compare: p.check,
		Frontends: func(ctx context.Context) ([]kernel.Count, error) { return maps.FrontendCounts(ctx, p.dir) },
		Backends: func(ctx context.Context, of *model.Table) ([]kernel.BackendCount, error) {
			return maps.BackendCounts(ctx, p.dir, of)
		},
		Drops: func(ctx context.Context) ([]kernel.DropStats, error) { return packet.DropStats(ctx, p.dir) },
		Connections: func(ctx context.Context, to map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
			return packet.ConnectionsTo(ctx, p.dir, to)
		},
		Strays: func(ctx context.Context) (*kernel.Strays, error) { return packet.Strays(ctx, p.dir) },
		Maps:   func(ctx context.Context) ([]kernel.MapUsage, error) { return maps.Usage(ctx, p.dir) },
	}.Read(ctx, what)
}

// Remove implements dataplane.Plane. No connection passes through this process.
func (p *Plane) Remove(ctx context.Context, _ kernel.Removal) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	moved := errors.Join(migrate.Move(ctx, p.Connections(), nil), p.steps.At("connections moved"))
	p.opening.Lock()
	defer p.opening.Unlock()
	p.endGrowing()
	errs := []error{moved, p.sockets.Remove(p.dir), p.steps.At("socket path removed")}
	if moved == nil { // or else the programs go on with what couldn't be moved
		errs = append(errs, p.packets.Remove(p.dir), p.steps.At("packet path removed"))
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	p.store, p.state, p.applied, p.collected = nil, nil, nil, nil
	if err := errors.Join(errs...); err != nil {
		return err // the pins lead the next attempt to what is left
	}
	return pins.Remove(p.dir)
}

// Close gives up the plane's descriptors. What is in the kernel stays.
func (p *Plane) Close() error {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.endGrowing()
	var errs []error
	for _, path := range p.paths {
		errs = append(errs, path.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// Unsupported implements dataplane.Plane.
func (p *Plane) Unsupported() []kernel.Unsupported {
	unsupported := []kernel.Unsupported{
		{Feature: kernel.Hairpin, Why: "a socket that gets its own pod as the backend is connected directly, and needs no translation"},
	}
	if p.cgroupLimit != "" {
		unsupported = append(unsupported, sock.CgroupUnsupported(p.cgroupLimit))
	}
	return unsupported
}
