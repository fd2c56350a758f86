package ebpf

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Plane programs eBPF maps and keeps the programs where they belong. See
// dataplane.Plane for what its methods owe.
type Plane struct {
	options kernel.Options
	dir     string // where everything is pinned
	sockets *socketPath
	store   *store       // nil until the first Apply
	state   *state       // nil if what the maps hold isn't known
	applied *model.Table // what the maps say
}

// New makes the plane of the network namespace that this process lives in. It
// changes nothing.
func New(options kernel.Options) (*Plane, error) {
	if err := probe(); err != nil {
		return nil, err
	}
	cgroup, err := findCgroup(options)
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
	return &Plane{options: options, dir: dir, sockets: sockets}, nil
}

// Apply implements dataplane.Plane. The maps come before the programs that read
// them.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.open(); err != nil {
		return err
	}
	full := p.state == nil || verify
	if err := p.program(want, full); err != nil {
		p.state = nil
		return err
	}
	p.applied = want
	if full {
		return p.sockets.attach(p.store)
	}
	return nil
}

func (p *Plane) open() (err error) {
	if p.store != nil {
		return nil
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	p.store, err = openStore(p.dir, p.sockets.spec)
	return err
}

// program makes the tables say what want says.
func (p *Plane) program(want *model.Table, full bool) error {
	if full {
		return p.compare(want)
	}
	plan, noID := p.state.change(p.applied, want, want.Since(p.applied))
	if err := p.write(plan); err != nil {
		return err
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
	p.state = newState(p.options.Scheduler)
	p.state.adopt(have, want)
	target, noID := p.state.build(want)
	if err := p.write(difference(have, target)); err != nil {
		return err
	}
	return noID
}

func (p *Plane) write(plan *plan) error {
	if err := p.store.clear(p.state.given); err != nil {
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
	var err error
	if p.store != nil {
		err = p.store.close()
	}
	p.store, p.state, p.applied = nil, nil, nil
	return errors.Join(err, removePins(p.dir))
}

// Lacks implements dataplane.Plane.
func (p *Plane) Lacks() []kernel.Lack { return nil }

// probe finds out whether this process may load programs.
func probe() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return &kernel.MissingError{What: "eBPF, or CAP_BPF and CAP_NET_ADMIN", Since: "5.10", Err: err}
	}
	return m.Close()
}
