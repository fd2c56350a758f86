// Package echo is the server in the lab's pods. It answers with the pod's name
// and the client address that it sees.
//
//   - HTTP: GET /hostname is the pod's name, /clientip the client's address and
//     port as seen here, any other path both and the server's own address.
//   - TCP and SCTP without HTTP: for each line, "NAME CLIENT-ADDRESS\n".
//   - UDP: for each datagram, the same as one datagram.
//
// A TCP port answers both HTTP and lines: the first bytes tell which it is.
package echo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Port is a port to answer on.
type Port struct {
	Number   uint16
	Protocol string // TCP, UDP or SCTP, as in the API; empty is TCP
}

// String is the port as in "80/TCP".
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Server answers on some ports.
type Server struct {
	name    string
	http    *http.Server
	sniffed *handover

	in       func(func() error) error
	opening  sync.Mutex     // guards closers
	closers  []func() error // the listening sockets
	running  sync.WaitGroup // loops over sockets and connections
	active   atomic.Int64   // when a client last came or went, in Unix nanoseconds
	draining atomic.Bool

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// Start opens the ports, each in both IP families, and answers until Close. The
// sockets are opened by way of in (netns.NS.Do, for instance) and so belong to
// the network namespace in which it runs its function; all else, however many
// servers there are, happens in the calling process.
func Start(name string, ports []Port, in func(func() error) error) (*Server, error) {
	s := &Server{name: name, in: in, conns: map[net.Conn]struct{}{}, sniffed: newHandover()}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serveHTTP), ReadHeaderTimeout: time.Minute}
	s.running.Go(func() {
		// ErrServerClosed is how Serve always ends.
		_ = s.http.Serve(s.sniffed)
	})
	for _, p := range ports {
		if err := s.Open(p); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Open opens another port. A server that has been closed opens none, which is no
// error.
func (s *Server) Open(p Port) error {
	if p.Protocol == "" {
		p.Protocol = "TCP"
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil
	}
	if err := s.in(func() error { return s.open(p) }); err != nil {
		return fmt.Errorf("listen on %v: %w", p, err)
	}
	return nil
}

// open opens one port; it runs inside the network namespace.
func (s *Server) open(p Port) error {
	address := fmt.Sprintf(":%d", p.Number)
	switch p.Protocol {
	case "TCP":
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		s.accept(l, s.serveTCP)
	case "UDP":
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, c.Close)
		s.running.Go(func() { s.serveUDP(c) })
	case "SCTP":
		l, err := listenSCTP(p.Number)
		if err != nil {
			return err
		}
		s.accept(l, s.serveLines)
	default:
		return fmt.Errorf("protocol %q: must be TCP, UDP or SCTP", p.Protocol)
	}
	return nil
}

// Drain waits, still answering, until there is no established connection and
// for the given time neither a new one nor a datagram has come, or until the
// context ends. HTTP clients are told to come back on another connection.
func (s *Server) Drain(ctx context.Context, quiet time.Duration) error {
	s.draining.Store(true)
	s.touch()
	tick := time.NewTicker(max(quiet/10, time.Millisecond))
	defer tick.Stop()
	for s.Connections() > 0 || time.Since(time.Unix(0, s.active.Load())) < quiet {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// touch notes that a client came or went.
func (s *Server) touch() { s.active.Store(time.Now().UnixNano()) }

// Connections is the number of established connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Close closes the listening sockets and all connections.
func (s *Server) Close() error {
	var errs []error
	s.opening.Lock()
	defer s.opening.Unlock()
	for _, c := range s.closers {
		errs = append(errs, ignoreClosed(c()))
	}
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		errs = append(errs, ignoreClosed(c.Close()))
	}
	s.mu.Unlock()
	errs = append(errs, s.http.Close())
	s.running.Wait()
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
