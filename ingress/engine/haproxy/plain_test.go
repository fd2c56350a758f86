package haproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestPlain: a request for a host whose requests all go to one backend is answered,
// and passed on, as it is for a host that has a rule besides, which nothing matches.
func TestPlain(t *testing.T) {
	r := newRig(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var lines []string
		for name, values := range q.Header {
			lines = append(lines, fmt.Sprint(name, values))
		}
		slices.Sort(lines)
		body, _ := io.ReadAll(q.Body) // an error shows in its length
		w.Header().Set("Seen", fmt.Sprint(q.Method, q.RequestURI, q.Host, len(body), lines))
	}))
	t.Cleanup(s.Close)
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(s.Listener.Addr().String()), Weight: 1}}}
	never := rule("/", "a")
	never.Match = model.Match{Kind: model.PathRegexp, Path: "/never", Regexp: regexp.MustCompile("^/never$")}
	l := &model.Listener{Name: "ns/gw/http"}
	l.SetHosts([]*model.Host{
		{Hostname: "a.example", Rules: []*model.Rule{rule("/", "a")}},
		{Hostname: "b.example", Rules: []*model.Rule{never, rule("/", "a")}},
		{Hostname: "*.example", Rules: []*model.Rule{rule("/", "none")}},
	})
	r.socket.Listeners = []*model.Listener{l}
	if err := r.Apply(&model.Table{Sockets: []*model.Socket{r.socket}, Pools: r.pools}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.plan.entries[r.plan.sockets[0].id+"f.map"]); n != 1 {
		t.Errorf("%d hosts are plain, want a.example only", n)
	}
	for _, request := range plainRequests() {
		plain := r.raw(strings.ReplaceAll(request, "HOST", "a.example"))
		other := strings.ReplaceAll(r.raw(strings.ReplaceAll(request, "HOST", "b.example")), "b.example", "a.example")
		if plain != other {
			t.Errorf("%q: %q, want %q", request, plain, other)
		}
	}
	r.plainHTTP2()
}

// plainHTTP2 asks both hosts by HTTP/2, where bodies and hosts are said otherwise.
func (r *rig) plainHTTP2() {
	r.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, r.Sockets()["ns/gw:80"].String())
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	ask := func(host, method, path, body string, sized bool, header http.Header) string {
		q, err := http.NewRequestWithContext(r.Context(), method, "http://"+host+path, strings.NewReader(body))
		if err != nil {
			r.Fatal(err)
		}
		q.Header = header.Clone()
		if body != "" && !sized {
			q.ContentLength = -1
		}
		answer, err := transport.RoundTrip(q)
		if err != nil {
			r.Fatalf("%s %s%s: %v", method, host, path, err)
		}
		_ = answer.Body.Close() // what it says is in a header
		return strings.ReplaceAll(answer.Status+" "+answer.Header.Get("Seen"), host, "HOST")
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "BREW"} {
		for _, path := range []string{"/", "/a/../b", "/%2e%2e/a", "/a?b=/../c", "/never"} {
			for _, body := range []string{"", "text"} {
				for _, header := range []http.Header{{}, {"Te": {"trailers"}}, {"X-Forwarded-For": {"1.2.3.4"}}, {"Forwarded": {"for=1.2.3.4"}}, {"Cookie": {"a=b", "c=d"}}} {
					for _, sized := range []bool{true, false} {
						plain, other := ask("a.example", method, path, body, sized, header), ask("b.example", method, path, body, sized, header)
						if plain != other || !strings.HasPrefix(plain, "200 OK "+method) {
							r.Errorf("%s %s %q %v: %q, want %q", method, path, body, header, plain, other)
						}
					}
				}
			}
		}
	}
}

// TestBodyBesideHeaders: a body that comes in chunks, and of which only the beginning
// has room beside long headers, isn't taken for one that ends there.
func TestBodyBesideHeaders(t *testing.T) {
	r := newRig(t)
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{r.endpoint("a")}}
	bounded := rule("/", "a")
	bounded.Action.MaxBody = 8000
	r.rules = []*model.Rule{bounded}
	r.apply()
	send := func(header, body int) string {
		return r.raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nX-Long: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", strings.Repeat("a", header), body, strings.Repeat("b", body)))
	}
	for _, one := range []struct {
		header, body int
		want         string
	}{{10, 7000, "200"}, {10, 9000, "413"}, {10, 50_000, "41"}, {9000, 50_000, "41"}, {9000, 9000, "41"}} {
		if got := send(one.header, one.body); !strings.HasPrefix(got, one.want) {
			t.Errorf("%d bytes of headers and %d of a body: %s, want %s", one.header, one.body, got, one.want)
		}
	}
}

// plainRequests are some that are plain, and many that look like it.
func plainRequests() []string {
	var out []string
	for _, path := range []string{
		"/", "/a", "/a?b=/../c", "/a/", "//", "/.", "/..", "/./a", "/a/../b", "/a/.b", "/.well-known/acme-challenge/x", "/%2e%2E/a", "/a/%2e", "/a%2e", "/a.b/c", "*", "a", "http://HOST", "http://HOST/a/../b", "http://other/a", "/a#b", "/never", "/a%00", "/%41",
	} {
		out = append(out, "GET "+path+" HTTP/1.1\r\nHost: HOST\r\n\r\n")
	}
	for _, method := range []string{"HEAD", "POST", "OPTIONS", "TRACE", "CONNECT", "get", "DELETE", "BREW"} {
		out = append(out, method+" /a HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n")
	}
	for _, lines := range []string{
		"Connection: keep-alive", "Connection: close", "Connection: Close", "Connection: X-A\r\nX-A: 1", "Connection: keep-alive, X-A\r\nX-A: 1", "Connection: close\r\nConnection: X-A\r\nX-A: 1", "Connection: Upgrade\r\nUpgrade: x",
		"Keep-Alive: 1", "Proxy-Connection: x", "Proxy-Authorization: x", "Proxy-Else: x", "Forwarded: for=1.2.3.4", "TE: trailers", "TE: gzip", "X-Forwarded-For: 1.2.3.4", "x-forwarded-host: evil", "X-FORWARDED-PROTO: https", "X-Forwarded-Port: 1",
		"Host: HOST", "Host: other", "Content-Length: 0", "Content-Length: 1\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n0", "X-A: \x01", "X-A: \x7f", "X-A: a\tb", "X-A: \xff", "X-A:", "X-A: a\r\n folded", "X-A: a\r\n host: other", "X-A : b", "X-A: a\rb", "Hostage: x", "Tea: x", "Upgrade: x",
		"Accept: */*\r\nUser-Agent: x\r\nCookie: a=b; c=d", "X-A: " + strings.Repeat("a", 9000),
	} {
		out = append(out, "GET /a HTTP/1.1\r\nHost: HOST\r\n"+lines+"\r\n\r\n", "GET /a HTTP/1.1\r\n"+lines+"\r\nHost: HOST\r\n\r\n")
	}
	for _, host := range []string{"", "Host:\r\n", "Host: HOST.\r\n", "Host: HOST:80\r\n", "Host: HOST:\r\n", "Host: \tHOST \r\n", "Host: HOST,HOST\r\n", "Host: HOST/\r\n", "Host: x.HOST\r\n"} {
		out = append(out, "GET /a HTTP/1.1\r\n"+host+"\r\n", "GET /a HTTP/1.0\r\n"+host+"\r\n")
	}
	return append(out, "GET /a HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "GET /a\r\n")
}

// raw sends bytes, and returns the status and what the endpoint saw.
func (r *rig) raw(request string) string {
	r.Helper()
	c, err := net.Dial("tcp", r.Sockets()["ns/gw:80"].String())
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte(request)); err != nil {
		r.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite() // what is no request yet never will be
	method, _, _ := strings.Cut(request, " ")
	answer, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return "no answer"
	}
	_ = answer.Body.Close() // what it says is in a header
	return answer.Status + " " + answer.Header.Get("Seen")
}
