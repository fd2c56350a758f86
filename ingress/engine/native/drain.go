package native

import (
	"context"
	"net"
	"net/http"
	"time"
)

// lookInterval is how often a socket that drains looks whether it is done.
const lookInterval = 20 * time.Millisecond

// stopListening ends new connections. The listener may be another process's too,
// which goes on with it.
func (s *socket) stopListening() {
	_ = s.listener.Close() // nothing is lost by an error
	if u := s.udp.Swap(nil); u != nil {
		s.engine.draining.Go(func() { s.closeUDP(u) })
	}
}

// drain ends the connections. For Options.Grace, each may bring one more request.
// After that, idle ones are closed, and others when their request is done, all of
// them when the context ends.
func (s *socket) drain(ctx context.Context) {
	defer s.endStreams()
	done := make(chan struct{})
	go func() { s.streams.Wait(); close(done) }()
	s.closing.Store(true)
	grace, cancel := context.WithTimeout(ctx, s.engine.options.Grace)
	until(grace, func() bool { return s.open.Load() == 0 })
	cancel()
	s.simple.end(ctx)
	if err := s.server.Shutdown(ctx); err != nil {
		_ = s.server.Close() // what remains is cut
	}
	until(ctx, func() bool { return s.upgraded.Load() == 0 })
	select {
	case <-done:
	case <-ctx.Done():
		s.endStreams()
		<-done
	}
}

// until waits until something is so or the context ends.
func until(ctx context.Context, so func() bool) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// count keeps the number of connections of HTTP.
func (s *socket) count(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if p, ok := c.(*plainConn); ok && p.counted {
			return
		}
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
	}
}

// last says to the client that the connection ends with this answer. In HTTP/2
// the header becomes a GOAWAY, and streams that run go on. HTTP/3 has been told
// already.
func (x *exchange) last(h http.Header) {
	if x.socket.closing.Load() && !x.isHTTP3 || x.isEarly() {
		h.Set("Connection", "close")
	}
}

// isEarly reports whether an answer comes before the end of the request's body. The
// connection ends with it: net/http would take what is left of a body that can't be read
// for the next request, or read it in two places at a time (it looks for neither where
// answers may be early).
func (x *exchange) isEarly() bool {
	return !x.multiplexed && x.body != nil && x.body != withoutBody && !x.body.ended.Load()
}
