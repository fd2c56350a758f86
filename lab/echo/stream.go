package echo

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// accept serves each connection of a listener in a goroutine, until the
// listener is closed.
func (s *Server) accept(l net.Listener, serve func(net.Conn)) {
	s.closers = append(s.closers, l.Close)
	s.running.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				// Out of file descriptors, or a client that has gone already.
				time.Sleep(10 * time.Millisecond)
				continue
			}
			tracked := &conn{Conn: c, server: s}
			if !s.track(tracked) {
				continue
			}
			s.running.Go(func() { serve(tracked) })
		}
	})
}

// track notes an established connection, or closes it when the server is.
func (s *Server) track(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	if s.closed {
		_ = c.Conn.Close() // nobody is left to be told
		return false
	}
	s.conns[c.Conn] = struct{}{}
	return true
}

// conn is a connection that the server knows until it is closed.
type conn struct {
	net.Conn
	server *Server
}

func (c *conn) Close() error {
	c.server.touch()
	c.server.mu.Lock()
	delete(c.server.conns, c.Conn)
	c.server.mu.Unlock()
	return c.Conn.Close()
}

// serveTCP finds out whether the client speaks HTTP.
func (s *Server) serveTCP(c net.Conn) {
	r := bufio.NewReaderSize(c, 512)
	if !isHTTP(r) {
		s.answerLines(c, r)
		return
	}
	if !s.sniffed.give(&sniffedConn{Conn: c, r: r}) {
		_ = c.Close() // the server has been closed
	}
}

func (s *Server) serveLines(c net.Conn) { s.answerLines(c, bufio.NewReaderSize(c, 512)) }

// answerLines answers each line. What goes wrong ends the connection, which is
// how the client hears of it.
func (s *Server) answerLines(c net.Conn, r *bufio.Reader) {
	defer c.Close()
	answer := fmt.Appendf(nil, "%s %s\n", s.name, c.RemoteAddr())
	for {
		_, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// isHTTP reads ahead as far as the first bytes can still be an HTTP method and a
// space (RFC 9112, section 3).
func isHTTP(r *bufio.Reader) bool {
	for n := 1; ; n++ {
		start, err := r.Peek(n)
		if err != nil {
			return false
		}
		match := slices.IndexFunc(methods, func(m string) bool { return strings.HasPrefix(m+" ", string(start)) })
		if match < 0 {
			return false
		}
		if start[n-1] == ' ' {
			return true
		}
	}
}

// sniffedConn gives the bytes that were read ahead back first.
type sniffedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *sniffedConn) Read(b []byte) (int, error) { return c.r.Read(b) }
