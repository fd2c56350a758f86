// Package httpports keeps HTTP ports open while those who answer change, and counts how
// health checks there end.
package httpports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Ports are the HTTP ports of the agents that follow each other in a process. One
// that the next agent serves, too, isn't closed in between: it goes on with that
// agent's answers.
type Ports struct {
	mu   sync.Mutex
	open map[string]*Port // by what they are for, and their address
}

// Port is an open one.
type Port struct {
	server  *http.Server
	handler atomic.Pointer[http.Handler]
	failed  chan error // has room for the one there may be
}

// idleTimeout is longer than most wait between two scrapes. Ports may be open to strangers, whose
// connections would pile up.
const idleTimeout = 2 * time.Minute

// New has no ports yet.
func New() *Ports { return &Ports{open: map[string]*Port{}} }

// Name is how ports knows one.
func Name(what, address string) string { return what + " " + address }

// Serve has the answers at an address come from a handler from now on.
func (p *Ports) Serve(ctx context.Context, what, address string, handler http.Handler) (*Port, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := Name(what, address)
	if there := p.open[name]; there != nil {
		there.handler.Store(&handler)
		return there, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	opened := &Port{failed: make(chan error, 1)}
	opened.handler.Store(&handler)
	opened.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: idleTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*opened.handler.Load()).ServeHTTP(w, r)
	})}
	p.open[name] = opened
	go func() {
		if err := opened.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			opened.failed <- err
		}
	}()
	return opened, nil
}

// Watch returns when the port can't be served any more, or ctx is done.
func (p *Port) Watch(ctx context.Context, what string) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.failed:
		return fmt.Errorf("serve %s: %w", what, err)
	}
}

// Keep closes all but some.
func (p *Ports) Keep(names ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed []error
	for name, open := range p.open {
		if slices.Contains(names, name) {
			continue
		}
		delete(p.open, name)
		if err := open.server.Close(); err != nil {
			failed = append(failed, fmt.Errorf("close %s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}
