package echo

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// serveHTTP answers who this is and whom it sees. The server's address is the
// one that the connection has here: behind a Service, the pod's own.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	var text string
	code := http.StatusOK
	switch r.URL.Path {
	case "/echo": // this and the next as agnhost's netexec
		text = r.URL.Query().Get("msg")
		if asked, err := strconv.Atoi(r.URL.Query().Get("code")); err == nil && asked >= 200 && asked < 600 {
			code = asked
		}
	case "/header":
		text = r.Header.Get(r.URL.Query().Get("key"))
	case "/hostname":
		text = s.name
	case "/clientip":
		text = r.RemoteAddr
	default:
		text = fmt.Sprintf("hostname: %s\nclient: %s\nserver: %v", s.name, r.RemoteAddr, r.Context().Value(http.LocalAddrContextKey))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(code)
	// An error here means that the client has gone.
	_, _ = fmt.Fprintln(w, text)
}

// handover is a listener whose connections were accepted elsewhere.
type handover struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), done: make(chan struct{})}
}

// give hands a connection to whoever accepts; false when the listener is closed.
func (h *handover) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
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
	h.close.Do(func() { close(h.done) })
	return nil
}

func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }
