package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// Access is what is told of a request once it is over.
type Access = model.Access

// exchange is a request under way.
type exchange struct {
	engine      *Engine
	socket      *socket
	request     model.Request
	multiplexed bool // of a connection that has others, in HTTP/2 and HTTP/3
	isHTTP3     bool
	writer      http.ResponseWriter // gets answers before the answer; nil leaves it to httptrace
	decision    model.Decision
	action      *model.Action
	backend     *model.Backend
	pool        *model.Pool
	client      netip.Addr
	trusted     bool      // the connection is a trusted proxy's
	vouched     bool      // one of several ways in that the rule has was open
	entered     bool      // the request counts in the rule's limits
	upgrade     bool      // the client asks for a WebSocket
	trailers    bool      // the client reads trailers
	askedAgain  bool      // the request is a question whether one is let in
	from        [3]string // where the request comes from: see forwarded
	counter     counter
	told        Access
	traced      func(*Access) // ends the trace; nil if there is none
	cookie      string        // of affinity, if the client has one
	body        *body
	informer    informer
	awaited     *awaited   // the body, if the endpoint is asked whether it wants it
	plain       *plainConn // the client's connection, if the short way has to look whether it is there
	endpoint    netip.AddrPort
	lastErr     error
	// What was said of the client by who let it in.
	authorized http.Header
	cookies    []string
	reason     string
}

// ServeHTTP answers a request by the table that is there when it comes.
func (s *socket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b := begunOf(r); b != nil {
		b.finish(w)
		return
	}
	x := &exchange{engine: s.engine, socket: s, isHTTP3: r.ProtoMajor == 3}
	status, reason := policy.Refused(r)
	x.take(r)
	expectBody(w, r)
	if x.upgrade {
		s.upgraded.Add(1)
		defer s.upgraded.Add(-1)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.streamCtx, cancel)()
		r = r.WithContext(ctx)
	}
	if s.engine.options.isWatched() {
		x.told.Time = time.Now()
		x.counter.ResponseWriter = w
		w = &x.counter
		defer x.report(r)
	}
	now := s.current.Load().model
	if text, found := s.engine.table.Load().Challenges.Answer(x.request.Path, now.Name); found && !x.request.TLS {
		x.decision = model.Decision{Socket: now}
		x.challenge(w, text)
		return
	}
	if status == 0 {
		status, reason = malformed(r)
	}
	if status != 0 {
		x.decision = model.Decision{Socket: now}
		x.answer(w, status, reason)
		return
	}
	x.decision = now.Decide(&x.request)
	x.trace(r)
	if l := x.decision.Listener; l != nil && !isStillLetIn(r, l.Clients) {
		if !x.isHTTP3 { // where no answer may have it
			w.Header().Set("Connection", "close")
		}
		x.answer(w, http.StatusMisdirectedRequest, "the connection began before its client had to show another certificate")
		return
	}
	x.serve(w, r)
}

// take reads what a decision is taken by, and leaves of the client's headers those
// that pass.
func (x *exchange) take(r *http.Request) {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	x.client, x.trusted = policy.Client(peer.Addr(), r.Header, x.engine.options.Trusted)
	x.request = policy.Read(r, x.trusted)
	x.upgrade, x.multiplexed = policy.IsWebSocket(r), r.ProtoMajor >= 2
	x.trailers = httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers")
	x.askedAgain = r.Header.Get("X-Sent-From") == sentFrom
	x.forwarded(r)
	policy.Clean(r.Header, x.trusted)
}

// serve answers itself or has a backend answer.
func (x *exchange) serve(w http.ResponseWriter, r *http.Request) {
	d := &x.decision
	if d.Rule == nil {
		x.answer(w, d.Status, d.Reason)
		return
	}
	x.action = d.Rule.Action
	if x.action.RequireHTTPS != 0 && x.scheme() != "https" {
		w.Header().Set("Location", d.Location)
		x.answer(w, d.Status, d.Reason)
		return
	}
	if i := x.action.Identity; i != nil {
		policy.Identify(r.Header, r.TLS, i)
	}
	if allow(w, r, x.action.CORS) { // before all that asks who the client is: a browser doesn't say
		return
	}
	defer x.leave()
	if status, reason := x.guard(w, r); status != 0 {
		x.answer(w, status, reason)
		return
	}
	if d.Status != 0 {
		if d.Location != "" {
			w.Header().Set("Location", d.Location)
		}
		x.answer(w, d.Status, d.Reason)
		return
	}
	if x.action.Auth != nil && !x.vouched {
		if status, reason := x.authorize(w, r); status != 0 {
			x.answer(w, status, reason)
			return
		}
	}
	pools := x.engine.table.Load().Pools
	x.readSession(r)
	x.backend = x.choose(pools)
	pool := pools[x.backend.Pool]
	if other := pools[x.action.Fallback]; other != nil && (x.backend.Invalid != "" || pool != nil && len(pool.Endpoints) == 0) {
		x.backend, pool = &model.Backend{Pool: other.Name}, other
	}
	switch {
	case x.backend.Invalid != "":
		x.answer(w, http.StatusInternalServerError, x.backend.Invalid)
	case x.backend.Redirect != nil:
		w.Header().Set("Location", x.backend.Redirect.Location(&x.request, &d.Rule.Match, d.Socket.Port))
		x.answer(w, x.backend.Redirect.Status, "redirect")
	case pool == nil:
		x.answer(w, http.StatusInternalServerError, "the backend isn't known yet")
	case allow(w, r, x.backend.CORS):
	default:
		x.pool = pool
		x.proxy(w, r)
	}
}

// readSession reads what keeps the client with an endpoint.
func (x *exchange) readSession(r *http.Request) {
	a := x.action.Affinity
	switch {
	case a == nil || a.ByClient:
	case a.Header != "":
		x.cookie = r.Header.Get(a.Header)
	default:
		if c, err := r.Cookie(a.Cookie); err == nil {
			x.cookie = c.Value
		}
	}
}

// choose is the backend with the client's endpoint, or one that is drawn.
func (x *exchange) choose(pools map[string]*model.Pool) *model.Backend {
	if x.cookie != "" && !x.action.Affinity.Loose {
		for i := range x.action.Backends {
			b := &x.action.Backends[i]
			if p := pools[b.Pool]; p != nil && b.Weight > 0 && slices.ContainsFunc(p.Endpoints, func(e model.Endpoint) bool { return endpointID(e.Addr) == x.cookie }) {
				return b
			}
		}
	}
	return x.action.Choose(rand.Uint64())
}

// answer is the gateway's own; what the reason is stays here.
func (x *exchange) answer(w http.ResponseWriter, status int, reason string) {
	x.reason = reason
	if x.action != nil && x.action.CORS != nil { // so that a script sees the status
		allowed(w.Header(), x.request.Header, x.action.CORS)
	}
	x.last(w.Header())
	x.announce(w.Header())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, http.StatusText(status)) // an error means that the client has gone
}

// challenge shows a certificate authority that the host is ours.
func (x *exchange) challenge(w http.ResponseWriter, text string) {
	x.reason = "challenge of ACME"
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.WriteString(w, text) // an error means that the client has gone
}

// proxy has an endpoint answer.
func (x *exchange) proxy(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if x.pool.Proxy != model.ProxyNone {
		ctx = withEnds(ctx, x.ends(r))
	}
	if d := x.action.Timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// An endpoint may answer while it still reads. Without this, net/http reads
		// the rest of the body itself then, and the endpoint doesn't get it.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			x.answer(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	r = x.passTrailers(r)
	x.body = withoutBody
	if r.ContentLength != 0 && r.Body != nil {
		x.body = newBody(w, r, x.action.MaxBody)
		defer x.body.end()
	}
	if mirrors := append(x.action.Mirrors[:len(x.action.Mirrors):len(x.action.Mirrors)], x.backend.Mirrors...); len(mirrors) > 0 {
		x.mirror(r, mirrors)
	}
	x.relay(ctx, w, r)
}

// ends are those of the client's connection; its port isn't known if a trusted
// proxy is between.
func (x *exchange) ends(r *http.Request) ends {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	e := endsOf(nil, local)
	e.client, _ = netip.ParseAddrPort(r.RemoteAddr)
	if e.client = netip.AddrPortFrom(e.client.Addr().Unmap(), e.client.Port()); e.client.Addr() != x.client {
		e.client = netip.AddrPortFrom(x.client, 0)
	}
	return e
}

// isGRPC reports whether a request is one of gRPC, whose body may be silent for long.
func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// failed answers for a backend that doesn't.
func (x *exchange) failed(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	if x.body.failed.Load() { // which who sends it wraps, or not
		err = x.body.why()
	}
	switch {
	case errors.As(err, &tooLarge):
		x.answer(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, errNoEndpoints):
		x.answer(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, errTryTimeout) || errors.Is(r.Context().Err(), context.DeadlineExceeded):
		x.answer(w, http.StatusGatewayTimeout, err.Error())
	case r.Context().Err() != nil || errors.Is(err, errClientGone):
		x.reason = "the client went away"
		w.WriteHeader(499)
	case x.body.failed.Load():
		x.answer(w, http.StatusBadRequest, "the body can't be read: "+err.Error())
	default:
		x.answer(w, http.StatusBadGateway, err.Error())
	}
}

// trace begins the request's trace, if there is one.
func (x *exchange) trace(r *http.Request) {
	if begin := x.engine.options.Trace; begin != nil && (x.decision.Rule == nil || !x.decision.Rule.Action.Untraced) {
		x.traced = begin(r.Header, x.trusted)
	}
}

// report reports the request, which is over.
func (x *exchange) report(r *http.Request) {
	a := x.access(r)
	if x.traced != nil {
		x.traced(a)
	}
	if log := x.engine.options.Access; log != nil {
		log(a)
	}
}

func (x *exchange) access(r *http.Request) *Access {
	a := &x.told
	*a = Access{
		Time: a.Time, Took: time.Since(a.Time), Client: x.client, Method: r.Method, Host: x.request.Host,
		Path: x.request.Path, Query: r.URL.RawQuery, Referer: r.Header.Get("Referer"), UserAgent: r.Header.Get("User-Agent"), Protocol: r.Proto, Status: x.counter.status, Bytes: x.counter.bytes,
		Socket: x.decision.Socket.Name, Reason: x.reason,
	}
	if x.action != nil {
		a.Route, a.Rule, a.Unlogged = x.action.Route, x.action.Rule, x.action.Unlogged
	}
	if x.endpoint.IsValid() {
		a.Endpoint = x.endpoint.String()
	}
	return a
}

// counter notes what is answered.
type counter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *counter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(b)
	c.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController flush and hijack.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// bufferPool has buffers for copying bodies.
var bufferPool = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
