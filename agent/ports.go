package agent

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

// ports are the HTTP ports of the agents that follow each other in a process. One
// that the next agent serves, too, isn't closed in between: it goes on with that
// agent's answers.
type ports struct {
	mu   sync.Mutex
	open map[string]*port // by what they are for, and their address
}

// port is an open one.
type port struct {
	server  *http.Server
	handler atomic.Pointer[http.Handler]
	failed  chan error // has room for the one there may be
}

func newPorts() *ports { return &ports{open: map[string]*port{}} }

// portName is how ports knows one.
func portName(what, address string) string { return what + " " + address }

// serve has the answers at an address come from a handler from now on.
func (p *ports) serve(ctx context.Context, what, address string, handler http.Handler) (*port, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := portName(what, address)
	if there := p.open[name]; there != nil {
		there.handler.Store(&handler)
		return there, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	opened := &port{failed: make(chan error, 1)}
	opened.handler.Store(&handler)
	opened.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// watch returns when the port can't be served any more, or ctx is done.
func (p *port) watch(ctx context.Context, what string) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.failed:
		return fmt.Errorf("serve %s: %w", what, err)
	}
}

// keep closes all but some.
func (p *ports) keep(names ...string) error {
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
