package engines

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/fairway-net/fairway/ingress/model"
)

// RunHTTP3 runs the tests of engines that have HTTP/3.
func RunHTTP3(t *testing.T, start func(*testing.T) Engine) {
	for _, bind := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, test := range []struct {
			name string
			run  func(*testing.T, *rig, netip.AddrPort)
		}{
			{"Decide", testDecide3}, {"Bodies", testBodies3}, {"Misdirected", testMisdirected3}, {"Limits", testLimits3}, {"OnAndOff", testOnAndOff3},
			{"Closed", testClosed3}, {"Ways", testWays3}, {"Clients", testClients3},
		} {
			t.Run(test.name+" "+bind, func(t *testing.T) {
				e := start(t)
				t.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					e.Close(ctx)
				})
				test.run(t, &rig{t: t, Engine: e}, netip.MustParseAddrPort(bind))
			})
		}
	}
}

// secure3 makes a table for HTTP/3 of listeners by name.
func secure3(t *testing.T, bind netip.AddrPort, rules []*model.Rule, pools ...*model.Pool) (*model.Table, *x509.CertPool) {
	t.Helper()
	roots := x509.NewCertPool()
	s := &model.Socket{Name: "ns/gw:443", Port: 443, TLS: true, HTTP3: true}
	for _, name := range []string{"a.example.com", "b.example.com"} {
		l := &model.Listener{Name: "ns/gw/" + name, Hostname: name, Certificates: []*tls.Certificate{certificate(t, roots, name)}}
		l.SetHosts([]*model.Host{{Hostname: name, Rules: rules}})
		s.Listeners = append(s.Listeners, l)
	}
	through := &model.Listener{Name: "ns/gw/through", Hostname: "through.example.com", Mode: model.Passthrough}
	through.SetHosts([]*model.Host{{Hostname: "through.example.com", Rules: rules}})
	s.Listeners = append(s.Listeners, through)
	table := tableOf(s, pools...)
	s.Bind = bind
	return table, roots
}

// client3 speaks HTTP/3 to an address, whatever a URL says.
func client3(t *testing.T, address netip.AddrPort, roots *x509.CertPool, name string) *http.Client {
	t.Helper()
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name},
		QUICConfig:      &quic.Config{HandshakeIdleTimeout: 20 * time.Second},
		Dial: func(ctx context.Context, _ string, config *tls.Config, quicConfig *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, address.String(), config, quicConfig)
		},
	}
	t.Cleanup(func() { _ = transport.Close() })
	return &http.Client{Transport: transport, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// testDecide3: requests by HTTP/3 go where Decide says.
func testDecide3(t *testing.T, r *rig, bind netip.AddrPort) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := r.endpoint("e", nil)
	for range 3 {
		var rules []*model.Rule
		for n := range 6 {
			a := to("p")
			a.Rule = fmt.Sprint(n)
			a.Response.Set = []model.Header{{Name: "Rule", Value: a.Rule}}
			rules = append(rules, &model.Rule{Match: randomMatch(random), Action: a})
		}
		table, roots := secure3(t, bind, rules, pool("p", e))
		r.apply(table)
		c := client3(t, r.address(), roots, "a.example.com")
		for range 40 {
			q := randomRequest(t, random)
			q.URL.Scheme, q.URL.Host, q.Host = "https", "a.example.com", ""
			m := read(q)
			m.TLS, m.ServerName, m.Host = true, "a.example.com", "a.example.com"
			want := table.Sockets[0].Decide(m)
			response, _, err := ask(c, q)
			if err != nil {
				t.Fatal(err)
			}
			status, rule := want.Status, ""
			if status == 0 {
				status, rule = http.StatusOK, want.Rule.Action.Rule
			}
			if response.StatusCode != status || response.Header.Get("Rule") != rule {
				t.Fatalf("%s %s %v: answer %d by rule %q, want %d by %q", q.Method, q.URL, q.Header, response.StatusCode, response.Header.Get("Rule"), status, rule)
			}
		}
	}
}

// testBodies3: bodies of any length go both ways, and the endpoint learns who asked.
func testBodies3(t *testing.T, r *rig, bind netip.AddrPort) {
	e := r.endpoint("e", nil)
	table, roots := secure3(t, bind, []*model.Rule{below("/", to("p"))}, pool("p", e))
	r.apply(table)
	c := client3(t, r.address(), roots, "a.example.com")
	for _, length := range []int{0, 1, 1_000_000} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a.example.com/x", strings.NewReader(strings.Repeat("x", length)))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("X-Forwarded-For", "192.0.2.66")
		response, body, err := ask(c, q)
		if err != nil || response.StatusCode != http.StatusOK || len(body) != length {
			t.Fatalf("%d bytes: answer %v with %d bytes, %v", length, response, len(body), err)
		}
		if got := response.Header.Get("Asked-X-Forwarded-For"); got != bind.Addr().String() || response.Header.Get("Asked-X-Forwarded-Proto") != "https" {
			t.Errorf("the endpoint is told of %q by %q", got, response.Header.Get("Asked-X-Forwarded-Proto"))
		}
		if response.Header.Get("Alt-Svc") != "" {
			t.Error("who speaks HTTP/3 already is told of it")
		}
	}
}

// testMisdirected3: a connection is for the listener of its server name, and only
// listeners for requests have it.
func testMisdirected3(t *testing.T, r *rig, bind netip.AddrPort) {
	e := r.endpoint("e", nil)
	table, roots := secure3(t, bind, []*model.Rule{below("/", to("p"))}, pool("p", e))
	r.apply(table)
	if response, _ := r.get(client3(t, r.address(), roots, "a.example.com"), "https://b.example.com/"); response.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a host of another listener: answer %d", response.StatusCode)
	}
	for _, name := range []string{"through.example.com", "other.example.com"} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+name+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, _, err := ask(client3(t, r.address(), roots, name), q); err == nil {
			t.Errorf("%s: answer %d", name, response.StatusCode)
		}
	}
}

// testLimits3: what is too long is refused, as over TCP.
func testLimits3(t *testing.T, r *rig, bind netip.AddrPort) {
	e := r.endpoint("e", nil)
	limited := to("p")
	limited.MaxBody = 1000
	table, roots := secure3(t, bind, []*model.Rule{below("/", limited)}, pool("p", e))
	r.apply(table)
	for length, want := range map[int]int{1000: http.StatusOK, 1001: http.StatusRequestEntityTooLarge} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a.example.com/", strings.NewReader(strings.Repeat("x", length)))
		if err != nil {
			t.Fatal(err)
		}
		if response, _, err := ask(client3(t, r.address(), roots, "a.example.com"), q); err != nil || response.StatusCode != want {
			t.Errorf("a body of %d bytes: answer %v, %v", length, response, err)
		}
	}
	before := e.asked.Load()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Long", strings.Repeat("x", 1<<20))
	if response, _, err := ask(client3(t, r.address(), roots, "a.example.com"), q); err == nil && response.StatusCode != http.StatusRequestHeaderFieldsTooLarge || e.asked.Load() != before {
		t.Errorf("a header of a megabyte: answer %v", response)
	}
}

// testOnAndOff3: clients over TCP are told of HTTP/3 as long as there is any.
func testOnAndOff3(t *testing.T, r *rig, bind netip.AddrPort) {
	e := r.endpoint("e", nil)
	table, roots := secure3(t, bind, []*model.Rule{below("/", to("p"))}, pool("p", e))
	r.apply(table)
	for _, on := range []bool{true, false, true} {
		next := *table
		s := *table.Sockets[0]
		s.HTTP3, next.Sockets = on, []*model.Socket{&s}
		r.apply(&next)
		for _, protocols := range []func(*http.Protocols){http1, func(p *http.Protocols) { p.SetHTTP2(true) }} {
			c := client(r.address(), protocols)
			c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
			response, _ := r.get(c, "https://a.example.com/")
			if got := response.Header.Get("Alt-Svc"); (got == `h3=":443"; ma=3600`) != on {
				t.Errorf("HTTP/3 %v: clients over TCP are told %q", on, got)
			}
			c.CloseIdleConnections()
		}
		if on {
			if response, _ := r.get(client3(t, r.address(), roots, "a.example.com"), "https://a.example.com/"); response.StatusCode != http.StatusOK {
				t.Errorf("answer %d", response.StatusCode)
			}
			continue
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // its end may take a moment
			conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(r.address()))
			if err == nil {
				_ = conn.Close() // it was free
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the UDP port is still used")
			}
		}
	}
}

// testClosed3: an engine that is closed leaves the port to others.
func testClosed3(t *testing.T, r *rig, bind netip.AddrPort) {
	e := r.endpoint("e", nil)
	table, roots := secure3(t, bind, []*model.Rule{below("/", to("p"))}, pool("p", e))
	r.apply(table)
	address := r.address()
	if response, _ := r.get(client3(t, address, roots, "a.example.com"), "https://a.example.com/"); response.StatusCode != http.StatusOK {
		t.Fatalf("answer %d", response.StatusCode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.Close(ctx)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close() // it was free
}
