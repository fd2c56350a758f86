package engines

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// pathParts are what paths are put together from that are written otherwise than they mean.
var pathParts = []string{"a", "b", "admin", "/", "/", "/", "..", ".", "%2e", "%2E%2e", "%61dmin", "adm%69n", "%2F", "%2f", "%5c", `\`, "%252f", "x", "%20", ";v=1", "%7Eu"}

// testReadings holds together what was matched, what was checked and what an endpoint
// received: whatever a path looks like, the endpoint's own reading of what it gets, be it
// strict or lax, meets the rule by which the request came.
func testReadings(t *testing.T, r *rig) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := r.endpoint("e", nil)
	rule := func(path, name string) *model.Rule {
		a := to("p")
		a.Rule, a.Response.Set = name, []model.Header{{Name: "Rule", Value: name}}
		return below(path, a)
	}
	stripped := rule("/x", "stripped")
	stripped.Action.Rewrite = &model.Rewrite{Path: &model.PathEdit{Value: "/"}}
	rules := []*model.Rule{rule("/admin", "admin"), rule("/a/b", "b"), stripped, rule("/", "open")}
	tables := table(rules, pool("p", e))
	s := tables.Sockets[0]
	r.apply(tables)
	decide := func(path, other string) model.Decision {
		return s.Decide(&model.Request{Method: "GET", Host: "h", Path: path, Other: other, Header: http.Header{}})
	}
	for range 400 {
		path := "/"
		for range 1 + random.IntN(6) {
			path += one(random, pathParts)
		}
		want := decide(policy.Path(path))
		got := r.send(t, "GET", "GET "+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		switch {
		case got == nil:
			t.Fatalf("%s: no answer", path)
		case want.Status != 0 && got.StatusCode != want.Status, want.Status == 0 && (got.StatusCode != http.StatusOK || got.Header.Get("Rule") != want.Rule.Action.Rule):
			t.Fatalf("%s: answer %d by rule %q, want %+v", path, got.StatusCode, got.Header.Get("Rule"), want)
		case want.Status != 0 || got.Header.Get("Rule") == "stripped": // whose endpoint has paths of its own
			continue
		}
		received := got.Header.Get("Asked-Path")
		for _, reading := range []string{received, lax(received)} {
			if by := decide(reading, ""); by.Rule != want.Rule {
				t.Fatalf("%s: passed by rule %q, and the endpoint, which received %s, may read %s, which is rule %q's", path, want.Rule.Action.Rule, received, reading, by.Rule.Action.Rule)
			}
		}
	}
}

// lax is a path as a careless program reads it: all is decoded, a backslash is a slash.
func lax(path string) string {
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	var out []string
	for part := range strings.SplitSeq(strings.ReplaceAll(path, `\`, "/"), "/") {
		switch part {
		case "", ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, part)
		}
	}
	return "/" + strings.Join(out, "/")
}

// testPassing: which headers of a client reach an endpoint.
func testPassing(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	edited := to("p")
	edited.Request.Set = []model.Header{{Name: "X-User", Value: "known"}}
	r.apply(table([]*model.Rule{below("/edited", edited), below("/", to("p"))}, pool("p", e)))
	for _, path := range []string{"/", "/%7E", "/edited"} {
		lines := []string{"Good: 1", "X-Other: 2", "Under_score: 3"}
		for _, name := range []string{
			"X-Real-IP", "x_real_ip", "X_Forwarded_For", "X.Forwarded.Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Forwarded-User", "X-Original-URL", "X-Original-URI",
			"X-Rewrite-URL", "X_Original_URL", "True-Client-IP", "Forwarded", "Front-End-Https", "Proxy-Authorization", "Proxy_Authorization", "HTTP2-Settings", "Transfer_Encoding", "Keep-Alive",
		} {
			lines = append(lines, name+": lie")
		}
		if path == "/edited" {
			lines = append(lines, "X-User: lie", "X_User: lie", "X.user: lie")
		}
		got := r.send(t, "GET", "GET "+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n")
		if got == nil || got.StatusCode != http.StatusOK {
			t.Fatalf("%s: answer %v", path, got)
		}
		for name, values := range got.Header {
			if strings.Contains(fmt.Sprint(values), "lie") {
				t.Errorf("%s: %s reaches the endpoint", path, name)
			}
		}
		for name, want := range map[string]string{"Good": "1", "X-Other": "2", "Under_score": "3", "X-Real-Ip": "127.0.0.1", "X-Forwarded-For": "127.0.0.1", "X-User": map[bool]string{true: "known"}[path == "/edited"]} {
			if v := got.Header.Get("Asked-" + name); v != want {
				t.Errorf("%s: the endpoint gets %s: %q, want %q", path, name, v, want)
			}
		}
	}
}

// testTrailers: nothing after a body says what only a proxy may say, or a rule.
func testTrailers(t *testing.T, r *rig) {
	e := r.endpoint("e", func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // trailers are there then
		for name, values := range q.Trailer {
			w.Header()["Trailed-"+name] = values
		}
	})
	edited := to("p")
	edited.Request.Set = []model.Header{{Name: "X-User", Value: "known"}}
	r.apply(table([]*model.Rule{below("/", edited)}, pool("p", e)))
	names := []string{"Sum", "X-Real-Ip", "X_Real_Ip", "X-Forwarded-For", "X-User", "X_User", "Authorization", "Host"}
	lines := ""
	for _, name := range names {
		lines += name + ": lie\r\n"
	}
	got := r.send(t, "POST", "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: "+strings.Join(names, ", ")+"\r\n\r\n1\r\na\r\n0\r\n"+lines+"\r\n")
	if got == nil || got.StatusCode != http.StatusOK {
		t.Fatalf("answer %v", got)
	}
	var lies []string
	for name, values := range got.Header {
		if strings.HasPrefix(name, "Trailed-") && len(values) > 0 && name != "Trailed-Sum" {
			lies = append(lies, name)
		}
	}
	if (len(lies) > 0) != (r.otherwise["trailers of requests"] != "") {
		t.Errorf("the endpoint gets %v", lies)
	}
	if passes := got.Header.Get("Trailed-Sum"); passes != "lie" {
		t.Errorf("the endpoint gets Sum: %q", passes)
	}
}

// testRefused: tunnels, and requests with two hosts.
func testRefused(t *testing.T, r *rig) {
	e := r.endpoint("e", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Asked-Host", q.Host)
		if up := q.Header.Get("Upgrade"); up != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", up)
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	if got := r.send(t, http.MethodConnect, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"); got == nil || got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("CONNECT: answer %v", got)
	}
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
	} {
		if got := r.send(t, request[:strings.IndexByte(request, ' ')], request); got == nil || got.StatusCode != http.StatusOK && got.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: answer %v", request, got)
		}
	}
	if got := r.frames(t, get(field{"host", "h"})); got != "200" {
		t.Errorf(":authority h, host h: answer %q", got)
	}
	if got := r.frames(t, get(field{"host", "b"})); (got != "400") != (r.otherwise["two hosts in HTTP/2"] != "") {
		t.Errorf(":authority h, host b: answer %q", got)
	}
}

// testFraming: no rule says where a message ends, or what a connection is for.
func testFraming(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	a := to("p")
	for _, h := range []model.Header{{Name: "Content-Length", Value: "5"}, {Name: "Transfer-Encoding", Value: "chunked"}, {Name: "Connection", Value: "close"}, {Name: "Upgrade", Value: "websocket"}} {
		a.Response.Set, a.Request.Set = append(a.Response.Set, h), append(a.Request.Set, h)
	}
	a.Response.Remove, a.Request.Remove = []string{"Content-Length"}, []string{"Content-Length"}
	r.apply(table([]*model.Rule{below("/", a)}, pool("p", e)))
	for _, protocols := range []func(*http.Protocols){http1, h2c} {
		c := client(r.address(), protocols)
		for _, body := range []string{"", strings.Repeat("x", 1000)} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			response, got, err := ask(c, q)
			if err != nil || got != body || response.StatusCode != http.StatusOK || response.Header.Get("Asked-Upgrade") != "" {
				t.Errorf("a body of %d bytes comes back as %d: %+v, %v", len(body), len(got), response, err)
			}
		}
		response, _ := r.get(c, "http://h/")
		if response.StatusCode != http.StatusOK || response.Header.Get("Asked-Upgrade") != "" {
			t.Errorf("answer %+v", response)
		}
	}
}

// testPreflight: a browser asks for leave without saying who its user is, and its script
// sees that somebody isn't let in.
func testPreflight(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	a := to("p")
	a.BasicAuth = &model.BasicAuth{Realm: "r", Users: map[string]string{"ada": "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="}}
	a.CORS = &model.CORS{Origins: []string{"*"}, Methods: []string{"GET"}, Credentials: true, Literal: true}
	r.apply(table([]*model.Rule{below("/", a)}, pool("p", e)))
	for method, want := range map[string]int{http.MethodOptions: http.StatusNoContent, http.MethodGet: http.StatusUnauthorized} {
		q, err := http.NewRequestWithContext(t.Context(), method, "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Origin", "https://evil.example")
		if method == http.MethodOptions {
			q.Header.Set("Access-Control-Request-Method", "GET")
		}
		response, _, err := ask(client(r.address(), http1), q)
		if err != nil || response.StatusCode != want || response.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: answer %+v, %v; want %d for any origin", method, response, err, want)
		}
	}
}

// testRequireHTTPS: clients without TLS are sent to it before anything else is asked of them.
func testRequireHTTPS(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	a := to("p")
	a.BasicAuth = &model.BasicAuth{Realm: "r", Users: map[string]string{}}
	a.RequireHTTPS = http.StatusPermanentRedirect
	r.apply(table([]*model.Rule{below("/", a)}, pool("p", e)))
	response, _ := r.get(client(r.address(), http1), "http://shop.example/a//b?c=d")
	if got := response.Header.Get("Location"); response.StatusCode != http.StatusPermanentRedirect || got != "https://shop.example/a/b?c=d" {
		t.Errorf("answer %d, to %q", response.StatusCode, got)
	}
	for host, want := range map[string]string{"[2001:db8::1]": "https://[2001:db8::1]/", "[2001:db8::1]:8080": "https://[2001:db8::1]/", "Shop.Example.:8080": "https://shop.example/"} {
		got := r.send(t, "GET", "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		if got == nil || got.Header.Get("Location") != want {
			t.Errorf("host %s: answer %+v, want a redirect to %s", host, got, want)
		}
	}
}
