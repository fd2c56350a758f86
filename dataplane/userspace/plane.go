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

// Prepare implements dataplane.Plane. There is nothing to prepare.
func (p *Plane) Prepare(context.Context, kernel.Preparation) error { return nil }

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

// logFile is where the standard error of the relay with this socket goes.
func logFile(socket string) string { return strings.TrimSuffix(socket, socketSuffix) + ".log" }

// notRunning reports whether err says that there is no relay.
func notRunning(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Close ends watching and gives up the connection to the relay, which goes on.
func (p *Plane) Close() error {
	p.forget()
	return nil
}

// forget ends watching, and all that was known.
func (p *Plane) forget() {
	if p.done != nil {
		close(p.done)
		p.done = nil
	}
	if p.relay != nil {
		discard(p.relay.conn.Close())
		p.relay = nil
	}
	p.last, p.swept = nil, nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routes = routeSet{}
}
