package ebpf

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/bpffs"
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
	store        *maps.Store                 // nil until the first Apply
	state        *program.State              // nil if what the tables hold isn't known
	applied      *model.Table                // what the tables say
	inForce      atomic.Pointer[model.Table] // what Apply was given last; nil while it works or if it failed
	collected    *model.Table                // what connections were brought into line with
	linksLeftOut error                       // interfaces for which there is no room
	stopGrowing  func()                      // ends the loop that enlarges maps; nil if there is none
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
	sockets.Steps, packets.Steps, packets.XDP = s, s, options.XDP
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
	if err := bpffs.Mount(); err != nil {
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
