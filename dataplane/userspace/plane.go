package userspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Plane drives a relay and the routes that lead packets to it.
type Plane struct {
	options kernel.Options
	expand  model.Expansion
	socket  string
	build   string // of this binary
	// notTransparent says why backends can't see their clients' addresses on
	// this machine; nil if they can. It is found out when it first matters, since that
	// takes a transaction of nf_tables.
	notTransparent func() error
	relay          *link
	swept          *model.Table  // what conntrack's flows were brought into line with
	last           *model.Table  // what the relay and the routes are at; nil if not known
	done           chan struct{} // ends watching; nil if nobody watches
	steps          kernel.Steps

	mu     sync.Mutex
	routes routeSet // what should be there, for the watcher
}

// New makes the plane of the network namespace that this process lives in.
func New(options kernel.Options) (*Plane, error) {
	if err := mayAddRoutes(); err != nil {
		return nil, err
	}
	options.StateDir = options.StateDirectory()
	var stat syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &stat); err != nil {
		return nil, fmt.Errorf("identify network namespace: %w", err)
	}
	// A relay serves one namespace, and several may share the state directory.
	socket := filepath.Join(options.StateDir, fmt.Sprintf("userspace-%d%s", stat.Ino, socketSuffix))
	if len(asideName(socket)) > maxSocketPath {
		return nil, fmt.Errorf("state directory %s: its name is too long to hold Unix sockets, whose whole path may have %d bytes", options.StateDir, maxSocketPath)
	}
	return &Plane{options: options, socket: socket, build: build(), notTransparent: sync.OnceValue(probeTransparent), routes: routeSet{}}, nil
}

// Apply implements dataplane.Plane. Routes come before listeners, which need
// them, and go after them. A listener that can't be opened, because another
// process has the port, is left out; all else is done.
func (p *Plane) Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error) {
	p.watchDrift()
	want = p.expand.Of(want)
	result, err := p.apply(ctx, want, verify != kernel.VerifyNothing)
	if errors.Is(err, errBroken) && ctx.Err() == nil {
		result, err = p.apply(ctx, want, true) // by a new relay
	}
	return result, err
}

// Prepare implements dataplane.Plane. There is nothing to prepare.
func (p *Plane) Prepare(context.Context, kernel.Preparation) error { return nil }

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{Objects: p.objects, Frontends: p.frontendCounts, Connections: connectionsTo}.Read(ctx, what)
}

func (p *Plane) apply(ctx context.Context, want *model.Table, verify bool) (result kernel.Result, err error) {
	if err := errors.Join(p.connect(ctx), p.steps.At("relay runs")); err != nil {
		return result, err
	}
	old := p.last
	if verify {
		old = nil
	}
	p.last = nil // until all of this is done
	if old == nil && p.notTransparent() == nil {
		if err := errors.Join(makeReturnPath(), p.steps.At("return path made")); err != nil {
			return result, err
		}
	}
	missing, superfluous, err := p.routeChanges(old, want)
	if err != nil {
		return result, err
	}
	for prefix := range missing {
		if err := errors.Join(addRoute(prefix), p.steps.At("route added")); err != nil {
			return result, err
		}
	}
	if len(missing) > 0 {
		p.watchRoutes(routesFor(want))
	}
	answer, failed := p.relay.ask(ctx, request{Op: opApply, Delta: want.Delta(old), Transparent: p.notTransparent() == nil})
	if errors.Is(failed, errBroken) {
		discard(p.relay.conn.Close())
		p.relay = nil
		return result, failed
	}
	for _, u := range answer.Unopened {
		result.LeftOut = append(result.LeftOut, kernel.LeftOut{Frontend: u.Key, Why: errors.New(u.Why)})
	}
	if err := p.steps.At("relay told"); err != nil {
		return result, errors.Join(failed, err)
	}
	for prefix := range superfluous {
		if err := errors.Join(deleteRoute(prefix), p.steps.At("route deleted")); err != nil {
			return result, errors.Join(failed, err)
		}
	}
	if failed == nil {
		p.last = want
		failed = p.sweep(ctx, want)
	}
	return result, failed
}

// sweep sees to flows that another plane has translated, which conntrack goes on
// with as long as they last.
func (p *Plane) sweep(ctx context.Context, want *model.Table) error {
	if p.notTransparent() != nil {
		return nil // without nf_tables, nobody has
	}
	sweep := conntrack.Plan(p.swept, want, want.Since(p.swept))
	if _, err := sweep.Run(ctx); err != nil {
		return fmt.Errorf("bring connections into line: %w", err)
	}
	p.swept = want
	return nil
}

// routeChanges tells which routes are to be added and which deleted. Without an
// old table it asks the kernel what there is.
func (p *Plane) routeChanges(old, want *model.Table) (missing, superfluous routeSet, err error) {
	if old != nil {
		if c := want.Since(old); !c.Settings && len(c.Frontends) == 0 {
			return nil, nil, nil
		}
	}
	need := routesFor(want)
	have := p.routes
	if old == nil {
		if have, err = readRoutes(); err != nil {
			return nil, nil, err
		}
	}
	missing, superfluous = need.without(have), have.without(need)
	p.watchRoutes(need.without(missing)) // those to come are watched when they are there
	return missing, superfluous, nil
}

// without are the routes of s that o doesn't have.
func (s routeSet) without(o routeSet) routeSet {
	rest := routeSet{}
	for prefix := range s {
		if _, found := o[prefix]; !found {
			rest[prefix] = struct{}{}
		}
	}
	return rest
}

// objects reads back what the kernel holds: see dataplane.Plane.Read.
func (p *Plane) objects(ctx context.Context) ([]kernel.Object, error) {
	routes, err := readRoutes()
	if err != nil {
		return nil, err
	}
	constant, err := readReturnPath()
	if err != nil {
		return nil, err
	}
	l, _, err := connect(ctx, p.socket)
	if notRunning(err) {
		return objects(constant, routes, model.NewTable(), func(model.Key) bool { return false }), nil
	}
	if err != nil {
		return nil, err
	}
	status, err := l.ask(ctx, request{Op: opStatus})
	if err := errors.Join(err, l.conn.Close()); err != nil {
		return nil, fmt.Errorf("ask relay: %w", err)
	}
	open := map[model.Key]bool{}
	for _, k := range status.Open {
		open[k] = true
	}
	return objects(constant, routes, status.Delta.Apply(model.NewTable()), func(k model.Key) bool { return open[k] }), nil
}

// logFile is where the standard error of the relay with this socket goes.
func logFile(socket string) string { return strings.TrimSuffix(socket, socketSuffix) + ".log" }

// notRunning reports whether err says that there is no relay.
func notRunning(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Connections implements dataplane.Plane: relays can't be moved, and serve to their end.
func (p *Plane) Connections() migrate.Connections { return nil }
