// Package engines holds engines against the model: the same table, the same
// requests, and the answers that [model.Socket.Decide] says. Tests of engines
// run it; so does whoever writes another one.
//
//	suite.go     the list of tests, and what they run in
//	requests.go  random tables and requests against Decide
//	borders.go   requests at the borders of what is usual, and what endpoints are told
//	author.go    texts by which the author of a route would end a message early
//	anything.go  the same with values that were made to be taken for something else
//	policy.go    what of a client's request counts, and what passes
//	ways.go      the same by each protocol and address family
//	traffic.go   protocols: HTTP/1.1, HTTP/2, WebSocket, TLS, streams
//	ciphers.go   versions and ciphers of TLS
//	identity.go  what endpoints are told of clients' certificates
//	clients.go   clients' certificates, asked for while connections last
//	terminate.go TLS that ends here, with bytes in it
//	renewed.go   what is asked of endpoints' certificates, and shown to them
//	early.go     answers before the end of their requests
//	smuggling.go requests whose end isn't clear
//	frames.go    HTTP/2 that isn't what it should be
//	unread.go    answers while a client still sends
//	hostile.go   clients that are too large, too slow, too fast, or lie
//	changes.go   changes of the table while requests run
//	fallback.go  pools that are asked where a backend has no endpoint
//	sticky.go    clients that stay with an endpoint
//	whose.go     connections to endpoints that say whose they are
//	ends.go      endpoints that go away, and the end of the engine
//	http3.go     HTTP/3, for engines that have it
//	h2spec.go    h2spec's cases
//	grpc.go      gRPC's own interoperability tests
//	options.go   what is asked of engines besides the table
package engines

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// Engine is what all engines are.
type Engine interface {
	// Apply serves a table from now on.
	Apply(*model.Table) error
	// Sockets lists the addresses that are served, by name of the socket.
	Sockets() map[string]netip.AddrPort
	// Close ends connections gracefully until the context ends.
	Close(context.Context)
}

// Otherwise are tests and cases that an engine answers otherwise, with the reason: a
// test is left out, and what is clear may be refused. Without the reason being so,
// the test of the case fails.
type Otherwise map[string]string

// Run runs all tests against engines that start makes.
func Run(t *testing.T, start func(*testing.T) Engine, otherwise Otherwise) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *rig)
	}{
		{"Decide", testDecide},
		{"DecideAnything", testDecideAnything},
		{"Borders", testBorders},
		{"Paths", testPaths},
		{"Readings", testReadings},
		{"Passing", testPassing},
		{"Trailers", testTrailers},
		{"Refused", testRefused},
		{"Framing", testFraming},
		{"Author", testAuthor},
		{"Preflight", testPreflight},
		{"Ways", testWays},
		{"RequireHTTPS", testRequireHTTPS},
		{"Headers", testHeaders},
		{"Protocols", testProtocols},
		{"WebSocket", testWebSocket},
		{"TLS", testTLS},
		{"Ciphers", testCiphers},
		{"Identity", testIdentity},
		{"ClientsChange", testClientsChange},
		{"ClientsOwn", testClientsOwn},
		{"Resumption", testResumption},
		{"Passthrough", testPassthrough},
		{"Terminate", testTerminate},
		{"Renewed", testRenewed},
		{"NothingSent", testNothingSent},
		{"Retry", testRetry},
		{"Timeout", testTimeout},
		{"Redirect", testRedirect},
		{"Changes", testChanges},
		{"Removed", testRemoved},
		{"Fallback", testFallback},
		{"BrokenOff", testBrokenOff},
		{"RetryHarm", testRetryHarm},
		{"Unheard", testUnheard},
		{"StickyByAddress", testStickyByAddress},
		{"StickyByCookie", testStickyByCookie},
		{"StickyAcross", testStickyAcross},
		{"ProxyProtocol", testProxyProtocol},
		{"ProxyStreams", testProxyStreams},
		{"Closed", testClosed},
		{"Smuggling", testSmuggling},
		{"Frames", testFrames},
		{"Forwarded", testForwarded},
		{"Limits", testLimits},
		{"SlowClients", testSlowClients},
		{"Unread", testUnread},
		{"Early", testEarly},
		{"RapidReset", testRapidReset},
	} {
		if reason := otherwise[test.name]; reason != "" {
			t.Logf("%s is left out: %s", test.name, reason)
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			e := start(t)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), leftovers)
				defer cancel()
				e.Close(ctx)
			})
			test.run(t, &rig{t: t, Engine: e, otherwise: otherwise})
		})
	}
}

// leftovers is how long connections that a test has left idle may keep its engine.
const leftovers = 300 * time.Millisecond

// rig is an engine under test with its endpoints.
type rig struct {
	t *testing.T
	Engine
	otherwise Otherwise
}

// endpoint answers with its name, what it was asked and by whom.
type endpoint struct {
	*httptest.Server
	asked atomic.Int64
}

func (r *rig) endpoint(name string, handler http.HandlerFunc) *endpoint {
	r.t.Helper()
	e := &endpoint{}
	if handler == nil {
		handler = func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body) // an error shows in what is sent back
			w.Header().Set("Endpoint", name)
			w.Header().Set("Asked-Path", q.RequestURI)
			w.Header().Set("Asked-Host", q.Host)
			w.Header().Set("Asked-Proto", q.Proto)
			for k, v := range q.Header {
				w.Header()["Asked-"+k] = v
			}
			_, _ = w.Write(body)
		}
	}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		e.asked.Add(1)
		handler(w, q)
	}))
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	e.Config.Protocols = &protocols
	e.Start()
	r.t.Cleanup(e.Close)
	return e
}

func (e *endpoint) addr() netip.AddrPort { return netip.MustParseAddrPort(e.Listener.Addr().String()) }

// table is a socket with one listener for all hosts, and pools.
func table(rules []*model.Rule, pools ...*model.Pool) *model.Table {
	l := &model.Listener{Name: "ns/gw/http"}
	l.SetHosts([]*model.Host{{Rules: rules}})
	return tableOf(&model.Socket{Name: "ns/gw:80", Port: 80, Listeners: []*model.Listener{l}}, pools...)
}

func tableOf(s *model.Socket, pools ...*model.Pool) *model.Table {
	s.Bind = netip.MustParseAddrPort("127.0.0.1:0")
	out := &model.Table{Sockets: []*model.Socket{s}, Pools: map[string]*model.Pool{}}
	for _, p := range pools {
		out.Pools[p.Name] = p
	}
	return out
}

func pool(name string, endpoints ...*endpoint) *model.Pool {
	p := &model.Pool{Name: name}
	for _, e := range endpoints {
		p.Endpoints = append(p.Endpoints, model.Endpoint{Addr: e.addr(), Weight: 1})
	}
	return p
}

func below(path string, a *model.Action) *model.Rule {
	return &model.Rule{Match: model.Match{Kind: model.PathPrefix, Path: path}, Action: a}
}

func to(pools ...string) *model.Action {
	a := &model.Action{Route: "HTTPRoute ns/r", Rule: "0"}
	for _, p := range pools {
		a.Backends = append(a.Backends, model.Backend{Pool: p, Weight: 1})
	}
	return a
}

func (r *rig) apply(t *model.Table) {
	r.t.Helper()
	if err := r.Apply(t); err != nil {
		r.t.Fatal(err)
	}
}

// address is that of the only socket.
func (r *rig) address() netip.AddrPort {
	r.t.Helper()
	for _, a := range r.Sockets() {
		return a
	}
	r.t.Fatal("the engine has no socket")
	return netip.AddrPort{}
}

// client follows no redirects and, whatever a URL says, connects to address.
func client(address netip.AddrPort, protocols func(*http.Protocols)) *http.Client {
	var p http.Protocols
	protocols(&p)
	return &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, network, address.String())
			},
			Protocols: &p, DisableCompression: true, MaxIdleConnsPerHost: 64,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }

func h2c(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }

// answer is a response without its body.
type answer struct {
	StatusCode      int
	Header, Trailer http.Header
}

// ask sends a request, and returns the answer and its body. A failure has no
// answer.
func ask(c *http.Client, q *http.Request) (*answer, string, error) {
	response, err := c.Do(q)
	if err != nil {
		return nil, "", fmt.Errorf("%s %s: %w", q.Method, q.URL, err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	return &answer{response.StatusCode, response.Header, response.Trailer}, string(body), err
}

func (r *rig) get(c *http.Client, url string) (*answer, string) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, body, err := ask(c, q)
	if err != nil {
		r.t.Fatal(err)
	}
	return response, body
}
