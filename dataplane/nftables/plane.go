package nftables

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/routelocalnet"
	"github.com/fairway-net/fairway/model"
)

// Plane programs nf_tables. See dataplane.Plane for what its methods owe.
type Plane struct {
	options kernel.Options
	expand  model.Expansion
	socket  *socket
	state   *state       // nil if what the kernel holds isn't known
	applied *model.Table // what the rules say
	swept   *model.Table // what connections were brought into line with
	sweeper conntrack.Sweeper
	watch   *watch
	cache   generationCache
	// reader is for those who ask while Apply is at work.
	reading  sync.Mutex
	reader   *socket
	localnet *routelocalnet.Keeper
	// noLocalnet says that node ports at 127.0.0.0/8 can't be served here.
	noLocalnet bool
	loopback   atomic.Bool // there are frontends at 127.0.0.0/8
}

// New opens the plane in the network namespace of the calling thread. It
// changes nothing.
func New(options kernel.Options) (*Plane, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	if err := s.probe(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	reader, err := openSocket()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &Plane{options: options, sweeper: conntrack.Sweeper{Later: options.SweepLater, Tell: options.Swept}, socket: s, reader: reader, localnet: routelocalnet.New(options.StateDirectory(), "nftables"), noLocalnet: !routelocalnet.Possible()}, nil
}

// probe finds out whether this process may ask nf_tables, and whether there is
// one.
func (s *socket) probe() error { return s.readTable(&contents{}) }

func missingNFTables(err error) error {
	return &kernel.MissingError{What: "nf_tables with the inet family (CONFIG_NF_TABLES_INET)", Since: "3.14", Err: err}
}

// Close gives up the plane's sockets. What is in the kernel stays.
func (p *Plane) Close() error {
	p.reading.Lock()
	defer p.reading.Unlock()
	err := errors.Join(p.sweeper.Close(), p.watch.close(), p.socket.close())
	if p.reader != nil {
		err = errors.Join(err, p.reader.close())
		p.reader = nil
	}
	return err
}

// Apply makes the kernel agree with want: see dataplane.Plane.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	return kernel.Result{}, p.apply(ctx, want, verify)
}

func (p *Plane) apply(ctx context.Context, want *model.Table, verify kernel.Verification) error {
	want = p.expand.Of(want)
	compare, verified := verify == kernel.VerifyAll, verify != kernel.VerifyNothing
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.startWatch(); err != nil {
		return err
	}
	first := p.state == nil
	if err := p.program(want, compare, verified); err != nil {
		p.state = nil
		return err
	}
	p.applied = want
	if first || verified { // a kube-proxy that is about to end may have put it back
		if err := p.removeKubeProxy(); err != nil {
			return err
		}
	}
	sweep := conntrack.Plan(p.swept, want, want.Since(p.swept))
	if err := p.sweeper.Run(ctx, sweep); err != nil {
		return fmt.Errorf("bring connections into line: %w", err)
	}
	p.swept = want
	return nil
}

func (p *Plane) program(want *model.Table, compare, verified bool) error {
	if p.state == nil || compare {
		if err := p.compare(want); err != nil {
			return err
		}
	} else if err := p.change(want); err != nil {
		return err
	}
	p.loopback.Store(p.state.loopbacks > 0)
	// The filter-prerouting chain drops what this would let others send to
	// 127.0.0.0/8.
	return p.localnet.Keep(p.state.loopbacks > 0 && !p.noLocalnet, verified)
}

// change does what is different between the last table and want.
func (p *Plane) change(want *model.Table) error {
	changes := want.Since(p.applied)
	if changes.Empty() {
		return nil
	}
	plan := p.state.change(p.applied, want, changes)
	b := p.socket.newBatch()
	b.addChains(plan.chains)
	b.write(plan)
	return explain(p.commitChange(b))
}

// compare reads the kernel's table, adopts its numbers, and writes what is
// missing or wrong. If somebody changes nf_tables between, it begins again.
func (p *Plane) compare(want *model.Table) error {
	p.cache.forget()
	for range readings {
		c, err := p.socket.read()
		if err != nil {
			return err
		}
		b := p.difference(c, want)
		err = p.commitQuietly(b, c.generation)
		if err == nil {
			p.cache.read(c.generation, b)
		}
		if err == nil || !errors.Is(err, unix.ERESTART) {
			return explain(err)
		}
	}
	c, err := p.socket.read()
	if err != nil {
		return err
	}
	return explain(p.commitQuietly(p.difference(c, want), 0))
}

// difference makes the state for a table over what the kernel holds, and the
// transaction that brings the kernel there.
func (p *Plane) difference(c *contents, want *model.Table) *batch {
	b := p.socket.newBatch()
	var t *target
	if c.usable() {
		adopted, next := c.adopt()
		t = p.build(want, adopted, next)
		b.repair(c, t)
	} else {
		t = p.build(want, nil, 1)
		b.replaceAll(c, t)
	}
	p.state = t.state
	return b
}

// build is build for what this machine can do.
func (p *Plane) build(want *model.Table, adopted map[string]adoptedPool, next uint32) *target {
	t := build(want, p.options, adopted, next)
	t.state.noLocalnet = p.noLocalnet
	return t
}

// explain says more clearly what kernels mean that lack something.
func explain(err error) error {
	switch {
	case err == nil || kernel.IsMissing(err):
		return err
	case errors.Is(err, unix.EOPNOTSUPP):
		return &kernel.MissingError{What: "what nftables mode needs of nf_tables", Since: "5.13", Err: err}
	}
	return err
}

// Prepare implements dataplane.Plane. There is nothing to prepare.
func (p *Plane) Prepare(context.Context, kernel.Preparation) error { return nil }

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{Objects: p.objects, Compare: p.check, Frontends: p.frontendCounts, Packets: p.packetCounts, Connections: conntrack.ConnectionsTo}.Read(ctx, what)
}

// Remove takes the table out of the kernel, and what kube-proxy left: see
// dataplane.Plane. No connection passes through this process.
func (p *Plane) Remove(ctx context.Context, _ kernel.Removal) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.state, p.applied, p.swept = nil, nil, nil
	p.cache.forget()
	c := &contents{}
	if err := p.socket.readTable(c); err != nil {
		return err
	}
	if c.present {
		if err := p.socket.removeTable(unix.NFPROTO_INET, tableName); err != nil {
			return err
		}
	}
	if !p.options.KeepKubeProxy {
		if err := p.removeKubeProxy(); err != nil {
			return err
		}
	}
	return p.localnet.Keep(false, true)
}

// Connections implements dataplane.Plane: conntrack has them all.
func (p *Plane) Connections() migrate.Connections { return nil }
