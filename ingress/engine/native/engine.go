// Package native is the engine in Go: HTTP/1.1, HTTP/2 (with TLS and without),
// gRPC, WebSocket, and TLS that is terminated or passed through. It is on
// net/http, and parses no HTTP itself. A new table is swapped in at once:
// connections stay, and each request goes by the table that is there when it
// comes.
//
//	engine.go    tables in, sockets up and down
//	socket.go    one listening socket
//	plain.go     clients' connections without TLS
//	simple.go    most of their requests, without net/http's server
//	simpleanswer.go  the answers to them
//	linger.go    how clients' connections are closed
//	drain.go     how a socket ends
//	tls.go       server names, certificates
//	http3.go     HTTP/3, at the UDP port beside
//	stream.go    connections that go on as bytes
//	proxy.go     a request, from decision to answer
//	strict.go    requests of HTTP/2 that are none
//	rewrite.go   what is changed in requests and answers
//	try.go       tries and their timeouts
//	upstream.go  connections to endpoints
//	relay.go     a request to an endpoint, and its answer to the client
//	inform.go    answers before the answer
//	tunnel.go    WebSockets
//	direct.go    connections to endpoints of HTTP/1.1
//	pick.go      which endpoint
//	eject.go     endpoints that fail
//	proxyprotocol.go  whose connection it is, from load balancers and to endpoints
//	cors.go      other origins
//	mirror.go    copies of requests
//	subrequest.go  others who say who is let in, and who answer in a backend's place
//	pace.go      how fast answers are sent
//	guard.go     who is let in, and how often
//	perclient.go how many connections a client may have
package native

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// Options say how the engine serves; the zero value is good.
type Options struct {
	// Drain is how long connections may go on when their socket or the engine
	// is closed; a minute if 0.
	Drain time.Duration
	// Grace is how long a connection without a request may still bring one then.
	// The answer to it is the connection's last (HTTP/1.1: Connection: close,
	// HTTP/2: GOAWAY). With 0, idle connections are closed at once.
	Grace time.Duration
	// ProxyFrom are load balancers whose connections begin with a header of the
	// PROXY protocol. Nobody else's may.
	ProxyFrom []netip.Prefix
	// Inherited are listeners that another process has opened, by address. Those
	// that the first table doesn't need are closed.
	Inherited map[netip.AddrPort]*net.TCPListener
	// HTTP3 serves HTTP/3 where the table says so.
	HTTP3 bool
	// Access, if not nil, is told of every request.
	Access func(*Access)
	// Trace, if not nil, begins a trace of a request, whose headers it may change, and
	// returns what ends it. It is told whether a trusted proxy sent the request.
	Trace func(h http.Header, trusted bool) func(*Access)
	// Trusted proxies' X-Forwarded-For is believed.
	Trusted []netip.Prefix
	// PerClient is how many connections a client may have at a time: an address, or a
	// /64 of IPv6. Those of ProxyFrom and Trusted may have any number; 0 lets all.
	PerClient int
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
}

// isWatched reports whether somebody is told of every request.
func (o *Options) isWatched() bool { return o.Access != nil || o.Trace != nil }

// Engine serves a table.
type Engine struct {
	options     Options
	log         *slog.Logger
	table       atomic.Pointer[model.Table]
	upstreams   upstreams
	pickers     pickers
	limiters    limiters
	connections connections
	copies      atomic.Int64 // of requests, under way
	tickets     tls.Config   // whose keys all listeners' tickets have; crypto/tls renews them daily

	mu       sync.Mutex
	sockets  map[netip.AddrPort]*socket
	draining sync.WaitGroup
	closed   bool
}

// New returns an engine that serves nothing yet.
func New(options Options) (*Engine, error) {
	e := &Engine{options: options, log: options.Logger, sockets: map[netip.AddrPort]*socket{}}
	if e.log == nil {
		e.log = slog.Default()
	}
	if e.options.Drain == 0 {
		e.options.Drain = time.Minute
	}
	e.table.Store(&model.Table{})
	return e, nil
}

// Inherit has the next table served by listeners that another process has
// opened; see Options.Inherited.
func (e *Engine) Inherit(listeners map[netip.AddrPort]*net.TCPListener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.options.Inherited = listeners
}

// Apply serves a table from now on. The error names the sockets that could not
// be opened; all others serve. Once the engine is closed, requests that still run
// find new endpoints, and no socket is opened.
func (e *Engine) Apply(table *model.Table) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.Store(table)
	if e.closed {
		return nil
	}
	var errs []error
	wanted := map[netip.AddrPort]*model.Socket{}
	for _, m := range table.Sockets {
		if !m.Bind.IsValid() {
			continue
		}
		if other := wanted[m.Bind]; other != nil {
			errs = append(errs, fmt.Errorf("serve %s: %s has the address %s", m.Name, other.Name, m.Bind))
			continue
		}
		wanted[m.Bind] = m
	}
	for bind, s := range e.sockets {
		if m := wanted[bind]; m == nil || m.TLS != s.current.Load().model.TLS {
			delete(e.sockets, bind)
			e.retire(s)
		}
	}
	for bind, m := range wanted {
		if s := e.sockets[bind]; s != nil {
			s.set(m)
			errs = append(errs, about(m, s.setUDP(m)))
			continue
		}
		s, err := e.open(m)
		if err != nil {
			errs = append(errs, fmt.Errorf("serve %s: %w", m.Name, err))
			continue
		}
		e.sockets[bind] = s
		errs = append(errs, about(m, s.setUDP(m)))
	}
	for bind, l := range e.options.Inherited {
		delete(e.options.Inherited, bind)
		_ = l.Close() // nobody asks for it any more
	}
	e.pickers.keep(table)
	e.upstreams.keep(table)
	return errors.Join(errs...)
}

// about says which socket an error is about.
func about(m *model.Socket, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("serve %s: %w", m.Name, err)
}

// Sockets lists the addresses that are served.
func (e *Engine) Sockets() map[string]netip.AddrPort {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]netip.AddrPort{}
	for _, s := range e.sockets {
		out[s.current.Load().model.Name] = s.address()
	}
	return out
}

// Listeners are those that the engine serves, by the address that the table has
// for them. They stay the engine's.
func (e *Engine) Listeners() map[netip.AddrPort]*net.TCPListener {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[netip.AddrPort]*net.TCPListener{}
	for bind, s := range e.sockets {
		out[bind] = s.listener
	}
	return out
}

// retire closes a socket for new connections and lets the others end.
func (e *Engine) retire(s *socket) {
	s.stopListening()
	e.draining.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.options.Drain)
		defer cancel()
		s.drain(ctx)
	})
}

// Close ends new connections at once and all others as Options.Drain says, or
// when the context ends.
func (e *Engine) Close(ctx context.Context) {
	e.mu.Lock()
	e.closed = true
	for bind, s := range e.sockets {
		delete(e.sockets, bind)
		s.stopListening()
		e.draining.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, e.options.Drain)
			defer cancel()
			s.drain(ctx)
		})
	}
	e.mu.Unlock()
	e.draining.Wait()
	e.upstreams.close()
}
