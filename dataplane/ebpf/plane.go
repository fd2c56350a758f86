package ebpf

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Plane programs eBPF maps and keeps the programs where they belong. See
// dataplane.Plane for what its methods owe.
type Plane struct {
	options kernel.Options
	narrow  string     // why the cgroup hasn't all of the node's sockets; "" if nothing says so
	opening sync.Mutex // for store and the paths' programs
	dir     string     // where everything is pinned
	paths   []path
	store   *store            // nil until the first Apply
	state   *state            // nil if what the tables hold isn't known
	applied *model.Table      // what the tables say
	swept   *model.Table      // what connections were brought into line with
	full    map[string]uint64 // how often maps that programs fill were full
	room    func()            // ends what keeps room in them; nil if nothing does
}

// New makes the plane of the network namespace that this process lives in. It
// changes nothing.
func New(options kernel.Options) (*Plane, error) {
	if err := probe(); err != nil {
		return nil, err
	}
	cgroup, narrow, err := findCgroup(options)
	if err != nil {
		return nil, err
	}
	netns, err := netnsCookie()
	if err != nil {
		return nil, err
	}
	dir, err := nodeDir()
	if err != nil {
		return nil, err
	}
	sockets, err := newSocketPath(cgroup, netns)
	if err != nil {
		return nil, err
	}
	packets, err := newPacketPath(options.Drift)
	if err != nil {
		return nil, err
	}
	return &Plane{options: options, narrow: narrow, dir: dir, paths: []path{sockets, packets}}, nil
}

// Apply implements dataplane.Plane. The maps come before the programs that read
// them.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify bool) error {
	return p.apply(ctx, want, verify, verify)
}

// apply compares what maps hold, or what is beside them, or does only what has
// changed.
func (p *Plane) apply(ctx context.Context, want *model.Table, compare, beside bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.Prepare(ctx); err != nil {
		return err
	}
	compare = compare || p.state == nil
	beside = beside || compare
	attach := beside || p.applied.Settings != want.Settings
	noRoom := p.program(want, compare, beside)
	if noRoom != nil {
		p.state = nil
	}
	if noRoom != nil && !lacksRoom(noRoom) {
		return noRoom
	}
	p.applied = want
	for _, path := range p.paths {
		if !attach {
			break
		}
		if err := path.attach(p.store, want); err != nil {
			p.state = nil
			if !lacksRoom(err) {
				return err
			}
			noRoom = errors.Join(noRoom, err)
		}
	}
	if attach {
		if err := p.store.forgetEarlier(); err != nil {
			return err
		}
	}
	p.keepRoom()
	for _, path := range p.paths {
		if err := path.sweep(ctx, p.store, p.changed(want, beside)); err != nil {
			return fmt.Errorf("bring connections into line: %w", err)
		}
	}
	p.swept = want
	if p.state != nil {
		p.state.gone = nil
	}
	return errors.Join(noRoom, p.overflows())
}

// lacksRoom reports whether an error is that something has no room.
func lacksRoom(err error) bool {
	var full *kernel.FullError
	return errors.As(err, &full)
}

// Prepare implements dataplane.Preparer: it opens or makes the maps, and has the
// kernel take the programs, which is a good part of the first Apply.
func (p *Plane) Prepare(ctx context.Context) error {
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
		group.Go(func() error { return path.load(p.store) })
	}
	return group.Wait()
}

// open is called with opening locked.
func (p *Plane) open() (err error) {
	if p.store != nil {
		return nil
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	if err := mountBPFFS(); err != nil {
		return err
	}
	if err := RemoveDead(); err != nil {
		return err
	}
	var specs []*ebpf.CollectionSpec
	for _, path := range p.paths {
		specs = append(specs, path.object())
	}
	p.store, err = openStore(p.dir, specs...)
	return err
}

// changed is what connections haven't been brought into line with yet.
func (p *Plane) changed(want *model.Table, full bool) changed {
	c := changed{old: p.swept, want: want, verify: full || p.state == nil}
	if p.state != nil {
		c.gone = p.state.gone
	}
	return c
}

// keepRoom begins to keep room in the maps that the programs fill.
func (p *Plane) keepRoom() {
	if p.room != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.store.keepingRoom(ctx) })
	p.room = func() { cancel(); done.Wait() }
}

func (p *Plane) endRoom() {
	if p.room != nil {
		p.room()
		p.room = nil
	}
}

// program makes the tables say what want says.
func (p *Plane) program(want *model.Table, compare, beside bool) error {
	if compare {
		return p.compare(want)
	}
	plan, noID := p.state.change(p.applied, want, want.Since(p.applied))
	if err := p.write(plan, nil); err != nil {
		return err
	}
	if beside || p.applied.Settings != want.Settings {
		if err := p.store.setRanges(want.Settings.Reserved); err != nil {
			return err
		}
	}
	return noID
}

// compare reads the tables, adopts their ids, and writes what is missing or
// wrong.
func (p *Plane) compare(want *model.Table) error {
	have, err := p.store.read()
	if err != nil {
		return err
	}
	next, target, noID := over(have, want, p.options)
	p.state = next
	if err := p.write(difference(have, target), target); err != nil {
		return err
	}
	if err := p.store.setRanges(want.Settings.Reserved); err != nil {
		return err
	}
	return noID
}

// over makes the state for a table over what the maps hold, and what they are to
// hold. The error says what has no room, as build's does.
func over(have contents, want *model.Table, o kernel.Options) (*state, byTable, error) {
	next := newState(o.Scheduler)
	next.adopt(have, want)
	target, err := next.build(want)
	return next, target, err
}

// write does what a plan says, with room for what tables are to hold in the end,
// if that's known.
func (p *Plane) write(plan *plan, target byTable) error {
	if err := p.store.reserve(target, p.state.given); err != nil {
		return err
	}
	p.state.given = nil
	return p.store.apply(plan)
}

// Remove implements dataplane.Plane.
func (p *Plane) Remove(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.opening.Lock()
	defer p.opening.Unlock()
	p.endRoom()
	errs := []error{reservePorts(p.dir)}
	for _, path := range p.paths {
		errs = append(errs, path.remove(p.dir))
	}
	if p.store != nil {
		errs = append(errs, p.store.close())
	}
	p.store, p.state, p.applied, p.swept = nil, nil, nil, nil
	return errors.Join(append(errs, removePins(p.dir))...)
}

// Close gives up the plane's descriptors. What is in the kernel stays.
func (p *Plane) Close() error {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.endRoom()
	var errs []error
	for _, path := range p.paths {
		errs = append(errs, path.close())
	}
	if p.store != nil {
		errs = append(errs, p.store.close())
	}
	return errors.Join(errs...)
}

// Lacks implements dataplane.Plane.
func (p *Plane) Lacks() []kernel.Lack {
	lacks := []kernel.Lack{
		{Feature: kernel.Hairpin, Why: "a socket that gets its own pod as the backend is connected directly, and needs no translation"},
	}
	if p.narrow != "" {
		lacks = append(lacks, socketsLack(p.narrow))
	}
	return lacks
}
