package native

import (
	"bufio"
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/fairway-net/fairway/ingress/model"
)

// maxSimpleHead is how long a request's headers may be here.
const maxSimpleHead = 4 << 10

// simple is a client's connection without TLS as long as it brings nothing but GET and
// HEAD that need no more than an endpoint's answer. net/http's server has a goroutine, a
// context and a copy of headers for each request, which is a third of what those cost.
// Here the connection's own goroutine reads them, by http.ReadRequest. A connection that
// brings anything else goes to net/http's server with what was read of it, and stays there.
type simple struct {
	socket *socket
	conn   *plainConn
	reader *bufio.Reader
	remote string
	sent   []byte   // by the client, from the request under way on
	x      exchange // the one under way
	early  early
}

// serveSimple serves a connection that has just been accepted.
func (s *socket) serveSimple(p *plainConn) {
	if p.raw == nil {
		s.accepted.give(p)
		return
	}
	c := &simple{socket: s, conn: p, reader: bufio.NewReaderSize(p, maxSimpleHead), remote: p.RemoteAddr().String()}
	c.early.conn = p
	s.simple.add(c)
	s.open.Add(1)
	stays := true
	defer func() {
		if why := recover(); why != nil && why != http.ErrAbortHandler { //nolint:errorlint // a panic's value
			s.engine.log.Error("request failed", "client", c.remote, "panic", why, "stack", string(debug.Stack()))
		}
		s.simple.remove(c)
		if stays {
			_ = p.Close() // it is over
			s.open.Add(-1)
		}
	}()
	if c.answerAll() {
		return
	}
	stays = false
	p.counted, p.replay = true, bytes.Clone(c.sent)
	if !s.accepted.give(p) {
		s.open.Add(-1)
	}
}

// answerAll answers requests until the connection is to be closed. It reports false if
// net/http's server has to go on with it.
func (c *simple) answerAll() (over bool) {
	for timeout := headerTimeout; ; timeout = idleTimeout {
		if c.conn.SetReadDeadline(time.Now().Add(timeout)) != nil || c.socket.simple.ended.Load() {
			return true
		}
		_, err := c.reader.Peek(4)
		c.sent, _ = c.reader.Peek(c.reader.Buffered()) // all that there is
		if err != nil {
			return len(c.sent) == 0
		}
		r := c.next()
		if r == nil || !c.leads(r) {
			return false
		}
		c.x.trace(r)
		response, err := c.x.ask(r)
		if err != nil || !isSimpleAnswer(r, response) {
			c.conn.begun.Store(&begun{exchange: &c.x, request: r, response: response, err: err})
			return false
		}
		goesOn := c.answer(r, response)
		if c.socket.engine.options.isWatched() {
			c.x.report(r)
		}
		if !goesOn {
			return true
		}
	}
}

// next is the next request; nil if it isn't a simple one, or isn't there as a whole.
func (c *simple) next() *http.Request {
	end := bytes.Index(c.sent, []byte("\r\n\r\n")) + 4
	if end < 4 || !bytes.HasPrefix(c.sent, []byte("GET /")) && !bytes.HasPrefix(c.sent, []byte("HEAD /")) {
		return nil
	}
	lines := bytes.Count(c.sent[:end], []byte("\r\n"))
	if bytes.Count(c.sent[:end], []byte("\n")) != lines || bytes.Count(c.sent[:end], []byte("\r")) != lines {
		return nil
	}
	r, err := http.ReadRequest(c.reader)
	if err != nil || c.reader.Buffered() != len(c.sent)-end || !isSimple(r) {
		return nil
	}
	r.RemoteAddr = c.remote
	return r
}

// isSimple reports whether a request has no body and asks nothing of the connection.
// It is as strict as net/http's server, which answers the others.
func isSimple(r *http.Request) bool {
	if r.Proto != "HTTP/1.1" || r.ContentLength != 0 || r.Close || r.URL.Host != "" || r.Host == "" || !httpguts.ValidHostHeader(r.Host) {
		return false
	}
	for name, values := range r.Header {
		switch name {
		case "Content-Length", "Expect", "Http2-Settings", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
			return false
		case "Connection":
			if len(values) != 1 || !strings.EqualFold(values[0], "keep-alive") {
				return false
			}
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return false
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return false
			}
		}
	}
	return true
}

// leads reports whether a request leads to endpoints, by a rule that asks for nothing
// else.
func (c *simple) leads(r *http.Request) bool {
	e, now := c.socket.engine, c.socket.current.Load().model
	x := &c.x
	*x = exchange{engine: e, socket: c.socket, plain: c.conn, writer: &c.early, body: withoutBody}
	if e.options.isWatched() {
		x.told.Time = time.Now()
	}
	x.take(r)
	table := e.table.Load()
	if _, found := table.Challenges.Answer(x.request.Path, now.Name); found {
		return false
	}
	x.decision = now.Decide(&x.request)
	if x.decision.Rule == nil || x.decision.Status != 0 || !isSimpleAction(x.decision.Rule.Action) {
		return false
	}
	x.action = x.decision.Rule.Action
	x.backend = x.action.Choose(rand.Uint64())
	if b := x.backend; b.Invalid != "" || b.Redirect != nil || b.CORS != nil || len(b.Mirrors) > 0 {
		return false
	}
	x.pool = table.Pools[x.backend.Pool]
	return x.pool != nil && x.isShort(r)
}

func isSimpleAction(a *model.Action) bool {
	return a.Allow == nil && len(a.Deny) == 0 && a.Limit == nil && a.BasicAuth == nil && a.Auth == nil && a.CORS == nil && len(a.Mirrors) == 0 &&
		a.Timeout == 0 && a.BackendTimeout == 0 && a.ReadTimeout == 0 && a.Affinity == nil && a.Errors == nil && a.Fallback == "" &&
		a.Identity == nil && a.Rate == nil
}

// begun is a request whose answer net/http's server has to hand to the client.
type begun struct {
	exchange *exchange
	request  *http.Request
	response *http.Response
	err      error
}

// begunOf is what was begun of a connection's first request; nil if nothing was.
func begunOf(r *http.Request) *begun {
	if p, ok := connectionOf(r.Context()).(*plainConn); ok && p.begun.Load() != nil {
		return p.begun.Swap(nil)
	}
	return nil
}

// finish answers.
func (b *begun) finish(w http.ResponseWriter) {
	x := b.exchange
	if x.engine.options.isWatched() {
		x.counter.ResponseWriter = w
		w = &x.counter
		defer x.report(b.request)
	}
	x.plain.handled.Store(true)
	defer x.plain.handled.Store(false)
	if b.err != nil {
		x.failed(w, b.request, b.err)
		return
	}
	defer b.drop()
	x.respond(w, b.response)
}

// drop closes an answer; what is left of it is lost.
func (b *begun) drop() {
	if b.response != nil {
		_ = b.response.Body.Close()
	}
}

// simples are the connections of a socket that net/http's server doesn't have.
type simples struct {
	ended atomic.Bool // no other request is read
	mu    sync.Mutex
	all   map[*simple]struct{}
}

func (s *simples) add(c *simple) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*simple]struct{}{}
	}
	s.all[c] = struct{}{}
}

func (s *simples) remove(c *simple) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

// end closes connections that are idle, and others when their request is done, all of
// them when the context ends.
func (s *simples) end(ctx context.Context) {
	s.ended.Store(true)
	s.each(func(c *simple) { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) }) // one that is closed has ended, too
	until(ctx, func() bool { return s.each(func(*simple) {}) == 0 })
	s.each(func(c *simple) { _ = c.conn.Close() }) // what remains is cut
}

// each calls do with each connection, and returns how many there are.
func (s *simples) each(do func(*simple)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		do(c)
	}
	return len(s.all)
}
