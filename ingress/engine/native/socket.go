package native

import (
	"context"
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

// Limits of what a client may ask for before anything is known of it.
const (
	headerTimeout  = 10 * time.Second // for a request's headers, or a TLS handshake
	idleTimeout    = 2 * time.Minute  // between requests
	maxHeaderBytes = 64 << 10
	maxStreams     = 250 // of a connection
)

// socket is a listening socket with its HTTP server. Connections that are for
// HTTP are handed to the server; TLS may lead others elsewhere.
type socket struct {
	engine   *Engine
	listener *net.TCPListener
	current  atomic.Pointer[serving]
	server   *http.Server
	accepted *handover
	closing  atomic.Bool  // answers say that the connection ends with them
	open     atomic.Int64 // connections of the HTTP server
	upgraded atomic.Int64 // connections that were HTTP once
	udp      atomic.Pointer[udp]
	simple   simples

	streams    sync.WaitGroup // connections that are not the HTTP server's
	endStreams context.CancelFunc
	streamCtx  context.Context
}

// serving is a model's socket with what follows from it.
type serving struct {
	model *model.Socket
	tls   map[*model.Listener]*listenerTLS
	mixed bool // some of its listeners are not for HTTP
}

func (e *Engine) open(m *model.Socket) (*socket, error) {
	l := e.options.Inherited[m.Bind]
	delete(e.options.Inherited, m.Bind)
	if l == nil {
		var err error
		if l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(m.Bind)); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	s := &socket{engine: e, listener: l, accepted: newHandover(l.Addr())}
	s.streamCtx, s.endStreams = context.WithCancel(context.Background())
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{
		Handler: s, Protocols: &protocols,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelDebug), // what clients do wrong
		// A connection keeps a buffer for the largest frame that it has met.
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10},
		ConnState: s.count, ConnContext: withConnection,
	}
	s.set(m)
	go s.accept()
	go func() {
		if err := s.server.Serve(s.accepted); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			e.log.Error("HTTP server ended", "socket", m.Name, "error", err)
		}
	}()
	return s, nil
}

// set changes what the socket serves.
func (s *socket) set(m *model.Socket) {
	next := &serving{model: m}
	if m.TLS {
		next.tls = make(map[*model.Listener]*listenerTLS, len(m.Listeners))
		before := s.current.Load()
		for _, l := range m.Listeners {
			if before != nil && before.tls[l] != nil {
				next.tls[l] = before.tls[l]
			} else {
				next.tls[l] = s.engine.tlsOf(l)
			}
			next.mixed = next.mixed || l.Mode != model.HTTP
		}
	}
	s.current.Store(next)
}

func (s *socket) address() netip.AddrPort {
	a, _ := netip.ParseAddrPort(s.listener.Addr().String())
	return a
}

// accept hands on connections until the listener is closed.
func (s *socket) accept() {
	pause := time.Millisecond
	for {
		c, err := s.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of files, say
			s.engine.log.Warn("a connection could not be accepted", "socket", s.current.Load().model.Name, "error", err)
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		admitted := s.engine.admit(c)
		if admitted == nil {
			continue
		}
		now, client := s.current.Load(), s.engine.introduce(admitted)
		switch {
		case !now.model.TLS:
			go s.serveSimple(newPlainConn(client))
		case !now.mixed:
			s.accepted.give(s.terminate(client))
		default:
			s.streams.Go(func() { s.sort(client) })
		}
	}
}

// handover is a listener whose connections were accepted elsewhere.
type handover struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newHandover(addr net.Addr) *handover {
	return &handover{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

// give hands a connection to whoever accepts, or closes it, which it reports as false.
func (h *handover) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		_ = c.Close()
		return false
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *handover) Addr() net.Addr { return h.addr }
