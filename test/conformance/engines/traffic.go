package engines

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// testPaths: what an endpoint is asked for, and that no way around a rule
// leads by dots.
func testPaths(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	edited := to("p")
	edited.Rewrite = &model.Rewrite{Path: &model.PathEdit{Value: "/new"}, Host: "inside"}
	whole := to("p")
	whole.Rewrite = &model.Rewrite{Path: &model.PathEdit{Full: true, Value: "/whole"}}
	r.apply(table([]*model.Rule{below("/old", edited), below("/all", whole), below("/public", to("p"))}, pool("p", e)))
	c := client(r.address(), http1)
	for path, want := range map[string]string{
		"/old": "/new", "/old/": "/new/", "/old/a%2Fb": "/new/a%2Fb", "/all/x": "/whole",
		"/public/a/../b": "/public/b", "/public/../admin": "", "/public/%2e%2e/admin": "", "/public/%2E%2e": "",
	} {
		response, _ := r.get(c, "http://h"+path)
		if got := response.Header.Get("Asked-Path"); got != want || (want == "") != (response.StatusCode == http.StatusNotFound) {
			t.Errorf("%s: answer %d, asked for %q, want %q", path, response.StatusCode, got, want)
		}
	}
	if response, _ := r.get(c, "http://h/old"); response.Header.Get("Asked-Host") != "inside" {
		t.Errorf("host is %q", response.Header.Get("Asked-Host"))
	}
}

// testHeaders: edits, and what a client says of itself isn't believed.
func testHeaders(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	a := to("p")
	a.Request = model.HeaderEdit{
		Set: []model.Header{{Name: "Set", Value: "new"}}, Add: []model.Header{{Name: "Add", Value: "more"}}, Remove: []string{"Remove"},
	}
	a.Response = model.HeaderEdit{Set: []model.Header{{Name: "Endpoint", Value: "hidden"}}, Remove: []string{"Asked-Proto"}}
	r.apply(table([]*model.Rule{below("/", a)}, pool("p", e)))
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header = http.Header{
		"Set": {"old"}, "Add": {"some"}, "Remove": {"me"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"https"},
		"Connection": {"X-Hop"}, "X-Hop": {"no"},
	}
	response, _, err := ask(client(r.address(), http1), q)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Asked-Set": "new", "Asked-Add": "some,more", "Asked-Remove": "", "Asked-X-Forwarded-For": "127.0.0.1", "Asked-X-Forwarded-Proto": "http",
		"Asked-X-Hop": "", "Endpoint": "hidden", "Asked-Proto": "",
	} {
		if got := strings.Join(response.Header.Values(name), ","); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// testProtocols: HTTP/1.1 and HTTP/2 on either side, bodies and trailers.
func testProtocols(t *testing.T, r *rig) {
	e := r.endpoint("e", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Trailer", "End")
		w.Header().Set("Asked-Proto", q.Proto)
		_, _ = io.Copy(w, q.Body) // an error shows at the other end
		w.Header().Set("End", "done")
	})
	for _, test := range []struct {
		name     string
		client   func(*http.Protocols)
		endpoint model.Protocol
		want     string
	}{
		{"HTTP1", http1, model.HTTP1, "HTTP/1.1"}, {"H2CToHTTP1", h2c, model.HTTP1, "HTTP/1.1"},
		{"HTTP1ToH2C", http1, model.H2C, "HTTP/2.0"}, {"H2C", h2c, model.H2C, "HTTP/2.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pool("p", e)
			p.Protocol = test.endpoint
			r.apply(table([]*model.Rule{below("/", to("p"))}, p))
			long := strings.Repeat("0123456789", 100_000)
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/", strings.NewReader(long))
			if err != nil {
				t.Fatal(err)
			}
			response, body, err := ask(client(r.address(), test.client), q)
			if err != nil {
				t.Fatal(err)
			}
			if body != long || response.Header.Get("Asked-Proto") != test.want || response.Trailer.Get("End") != "done" {
				t.Errorf("answer %d, %d bytes, by %q, trailer %v", response.StatusCode, len(body), response.Header.Get("Asked-Proto"), response.Trailer)
			}
		})
	}
}

// testWebSocket: a connection that is upgraded goes on as bytes, and outlives a
// change of the table.
func testWebSocket(t *testing.T, r *rig) {
	e := r.endpoint("e", upgrade)
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	c, lines := r.upgraded(t)
	for i := range 3 {
		if i == 1 {
			r.apply(table([]*model.Rule{below("/other", to("p"))}, pool("p", e)))
		}
		if _, err := fmt.Fprintf(c, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); err != nil || got != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func upgrade(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "websocket")
	w.Header().Set("Sec-Websocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") // RFC 6455, 1.3
	w.WriteHeader(http.StatusSwitchingProtocols)
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, line); err != nil {
			return
		}
	}
}

func (r *rig) upgraded(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", r.address().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(c)
	response, err := http.ReadResponse(lines, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer %v, %v", response, err)
	}
	_ = response.Body.Close() // there is none
	return c, lines
}

// testTLS: the certificate is that of the server name; a host of another
// listener is misdirected.
func testTLS(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	s := &model.Socket{Name: "ns/gw:443", Port: 443, TLS: true}
	roots := x509.NewCertPool()
	for _, name := range []string{"a.example.com", "b.example.com"} {
		pair := certificate(t, roots, name)
		l := &model.Listener{Name: "ns/gw/" + name, Hostname: name, Certificates: []*tls.Certificate{pair}}
		l.SetHosts([]*model.Host{{Hostname: name, Rules: []*model.Rule{below("/", to("p"))}}})
		s.Listeners = append(s.Listeners, l)
	}
	r.apply(tableOf(s, pool("p", e)))
	for _, protocols := range []func(*http.Protocols){http1, func(p *http.Protocols) { p.SetHTTP2(true) }} {
		c := client(r.address(), protocols)
		c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
		for _, name := range []string{"a.example.com", "b.example.com"} {
			if response, _ := r.get(c, "https://"+name+"/"); response.StatusCode != http.StatusOK || response.Header.Get("Asked-X-Forwarded-Proto") != "https" {
				t.Errorf("%s: answer %d, forwarded as %q", name, response.StatusCode, response.Header.Get("Asked-X-Forwarded-Proto"))
			}
		}
		c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "a.example.com"}
		c.CloseIdleConnections()
		if response, _ := r.get(c, "https://b.example.com/"); response.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("a host of another listener: answer %d", response.StatusCode)
		}
		if q, err := http.NewRequest(http.MethodGet, "https://b.example.com/", nil); err == nil {
			other := client(r.address(), protocols)
			other.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "c.example.com"}
			if _, _, err := ask(other, q); err == nil {
				t.Error("a server name that no listener has gets an answer")
			}
		}
		c.CloseIdleConnections()
	}
}

// testPassthrough: TLS that isn't ended here ends at the endpoint of its server
// name, beside TLS that is.
func testPassthrough(t *testing.T, r *rig) {
	inner := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inner") }))
	t.Cleanup(inner.Close)
	e := r.endpoint("e", nil)
	roots := x509.NewCertPool()
	roots.AddCert(inner.Certificate())
	s := &model.Socket{Name: "ns/gw:443", Port: 443, TLS: true}
	through := &model.Listener{Name: "ns/gw/through", Hostname: "example.com", Mode: model.Passthrough} // the name in httptest's certificate
	through.SetHosts([]*model.Host{{Hostname: "example.com", Rules: []*model.Rule{below("/", to("inner"))}}})
	ended := &model.Listener{Name: "ns/gw/ended", Hostname: "ended.example.org", Certificates: []*tls.Certificate{certificate(t, roots, "ended.example.org")}}
	ended.SetHosts([]*model.Host{{Hostname: "ended.example.org", Rules: []*model.Rule{below("/", to("p"))}}})
	s.Listeners = []*model.Listener{ended, through}
	addr := netip.MustParseAddrPort(inner.Listener.Addr().String())
	r.apply(tableOf(s, pool("p", e), &model.Pool{Name: "inner", Endpoints: []model.Endpoint{{Addr: addr, Weight: 1}}}))
	c := client(r.address(), http1)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	if _, body := r.get(c, "https://example.com/"); body != "inner" {
		t.Errorf("passed through: %q", body)
	}
	if response, _ := r.get(c, "https://ended.example.org/"); response.Header.Get("Endpoint") != "e" {
		t.Errorf("ended here: answer %d", response.StatusCode)
	}
}

// testRedirect: where clients are sent.
func testRedirect(t *testing.T, r *rig) {
	a := &model.Action{Redirect: &model.Redirect{Scheme: "https", Host: "other", Path: &model.PathEdit{Value: "/new"}, Status: http.StatusMovedPermanently}}
	port := &model.Action{Redirect: &model.Redirect{Port: 8443, Status: http.StatusFound}}
	r.apply(table([]*model.Rule{below("/old", a), below("/port", port), below("/none", &model.Action{Unroutable: true})}))
	c := client(r.address(), http1)
	for path, want := range map[string]string{"/old/x?y=z": "301 https://other/new/x?y=z", "/port": "302 http://h:8443/port", "/none": "500 ", "/else": "404 "} {
		response, _ := r.get(c, "http://h"+path)
		if got := fmt.Sprintf("%d %s", response.StatusCode, response.Header.Get("Location")); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
