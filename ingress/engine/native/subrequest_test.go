package native

import (
	"context"
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

// served is an engine with one rule, and pools of one endpoint each.
func served(t *testing.T, action *model.Action, pools map[string]http.HandlerFunc) (ask func(path string, header http.Header) *http.Response) {
	t.Helper()
	list := map[string]*model.Pool{"empty": {Name: "empty"}}
	for name, handler := range pools {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		list[name] = poolAt(name, s.Listener.Addr())
	}
	e := withRule(t, action, list)
	client := http.Client{
		Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("tcp", e.Sockets()["s"].String())
		}},
	}
	return func(path string, header http.Header) *http.Response {
		t.Helper()
		method, body := http.MethodGet, io.Reader(nil)
		if header.Get("Body") != "" {
			method, body = http.MethodPost, strings.NewReader(header.Get("Body"))
		}
		q, err := http.NewRequestWithContext(t.Context(), method, "http://shop.example"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range header {
			q.Header[name] = values
		}
		response, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
}

func poolAt(name string, a net.Addr) *model.Pool {
	return &model.Pool{Name: name, Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(a.String()), Weight: 1}}}
}

// withRule is an engine with one rule for all requests, at the socket "s".
func withRule(t *testing.T, action *model.Action, pools map[string]*model.Pool) *Engine {
	t.Helper()
	table := &model.Table{Pools: pools}
	l := &model.Listener{Name: "l"}
	l.SetHosts([]*model.Host{{Rules: []*model.Rule{{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: action}}}})
	table.Sockets = []*model.Socket{{Name: "s", Port: 80, Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{l}}}
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(t.Context()) })
	if err := e.Apply(table); err != nil {
		t.Fatal(err)
	}
	return e
}

// answering echoes what it was asked, as headers, and its own name.
func answering(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for k, v := range r.Header {
			w.Header()["Asked-"+k] = v
		}
		body, _ := io.ReadAll(r.Body) // an error shows in what is sent back
		w.Header().Set("From", name)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	}
}

func to(pool string) []model.Backend { return []model.Backend{{Pool: pool, Weight: 1}} }

// TestAuth: who is to say lets requests in, refuses them or has clients sign in,
// and the backend gets what was said and nothing that clients say of it.
func TestAuth(t *testing.T) {
	questions := make(chan *http.Request, 10)
	auth := func(w http.ResponseWriter, r *http.Request) {
		questions <- r
		switch r.Header.Get("Authorization") {
		case "good":
			w.Header().Set("X-User", "ada")
			w.Header().Set("X-Other", "secret")
			w.Header().Set("Set-Cookie", "session=1")
		case "forbidden":
			w.WriteHeader(http.StatusForbidden)
		case "broken":
			w.WriteHeader(http.StatusBadGateway)
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	action := &model.Action{Backends: to("web"), Auth: &model.Auth{URL: "http://auth.shop.svc/check?a=b", Pool: "auth", Method: http.MethodGet, Headers: []string{"X-User", "X-Role"}, Param: "rd"}}
	ask := served(t, action, map[string]http.HandlerFunc{"auth": auth, "web": answering("web")})
	in := ask("/a?b=c", http.Header{"Authorization": {"good"}, "X-User": {"eve"}, "X-Role": {"root"}, "Body": {"text"}, "X-Forwarded-For": {"192.0.2.66"}})
	body, _ := io.ReadAll(in.Body)
	if in.StatusCode != http.StatusOK || string(body) != "POST /a?b=c text" || in.Header.Get("Asked-X-User") != "ada" || in.Header.Get("Asked-X-Role") != "" ||
		in.Header.Get("Asked-X-Other") != "" || in.Header.Get("Set-Cookie") != "session=1" {
		t.Errorf("let in: %d, %q, %v", in.StatusCode, body, in.Header)
	}
	q := <-questions
	if q.Method != http.MethodGet || q.Host != "auth.shop.svc" || q.URL.RequestURI() != "/check?a=b" || q.ContentLength > 0 || q.Header.Get("X-Original-Method") != http.MethodPost ||
		q.Header.Get("X-Original-Url") != "http://shop.example/a?b=c" || q.Header.Get("X-Forwarded-For") != "127.0.0.1" || q.Header.Get("X-Auth-Request-Redirect") != "/a?b=c" {
		t.Errorf("the question is %s %s%s, %v", q.Method, q.Host, q.URL.RequestURI(), q.Header)
	}
	for authorization, want := range map[string]int{"": http.StatusUnauthorized, "forbidden": http.StatusForbidden, "broken": http.StatusInternalServerError} {
		if got := ask("/", http.Header{"Authorization": {authorization}}); got.StatusCode != want || got.Header.Get("From") != "" {
			t.Errorf("%q: answer %d, want %d", authorization, got.StatusCode, want)
		} else if want == http.StatusUnauthorized && got.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("what is asked of the client isn't handed on: %v", got.Header)
		}
	}
	if got := ask("/", http.Header{"X-Sent-From": {sentFrom}}); got.StatusCode != http.StatusLoopDetected {
		t.Errorf("a question that comes back: answer %d", got.StatusCode)
	}
}

// TestSignIn: clients that nobody knows are sent to where they can sign in, and told
// where they came from.
func TestSignIn(t *testing.T) {
	auth := &model.Auth{URL: "http://auth.shop.svc/", Pool: "auth", Method: http.MethodGet, Param: "rd"}
	ask := served(t, &model.Action{Backends: to("web"), Auth: auth}, map[string]http.HandlerFunc{
		"auth": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "web": answering("web"),
	})
	for signIn, want := range map[string]string{
		"https://$host/start?rd=$escaped_request_uri": "https://shop.example/start?rd=%2Fa%3Fb%3Dc%26d",
		"https://login.example/":                      "https://login.example/?rd=http%3A%2F%2Fshop.example%2Fa%3Fb%3Dc%26d",
	} {
		auth.SignIn = signIn
		if got := ask("/a?b=c&d", nil); got.StatusCode != http.StatusFound || got.Header.Get("Location") != want {
			t.Errorf("%s: answer %d, to %s; want %s", signIn, got.StatusCode, got.Header.Get("Location"), want)
		}
	}
}

// TestAuthFails: nobody is let in where nobody says so, and no author of an
// Ingress has the engine ask its own machine.
func TestAuthFails(t *testing.T) {
	own := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the engine's own machine was asked") }))
	defer own.Close()
	for what, auth := range map[string]*model.Auth{
		"no endpoint": {URL: "http://auth.shop.svc/", Pool: "empty"}, "no pool": {URL: "http://auth.shop.svc/", Pool: "gone"},
		"its own machine": {URL: own.URL}, "its own link": {URL: "http://169.254.169.254/"}, "mapped": {URL: "http://[::ffff:127.0.0.1]:80/"},
	} {
		auth.Method = http.MethodGet
		ask := served(t, &model.Action{Backends: to("web"), Auth: auth}, map[string]http.HandlerFunc{"web": answering("web")})
		if got := ask("/", nil); got.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s: answer %d", what, got.StatusCode)
		}
	}
}

// TestErrors: another backend answers in the place of answers with some codes, and
// where there is no endpoint.
func TestErrors(t *testing.T) {
	failing := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		default:
			answering("web")(w, r)
		}
	}
	errors := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("From", "errors")
		w.Header().Set("Told", strings.Join([]string{r.Header.Get("X-Code"), r.Header.Get("X-Original-Uri"), r.Header.Get("X-Service-Name"), r.Header.Get("X-Format")}, " "))
		if r.Header.Get("X-Code") == "404" {
			w.WriteHeader(http.StatusNotFound)
		}
	}
	codes := &model.Errors{Codes: []int{404, 503}, Pool: "errors", Header: []model.Header{{Name: "X-Service-Name", Value: "web"}}}
	pools := map[string]http.HandlerFunc{"web": failing, "errors": errors}
	ask := served(t, &model.Action{Backends: to("web"), Errors: codes}, pools)
	got := ask("/missing?a=b", http.Header{"Accept": {"text/html"}})
	if got.StatusCode != http.StatusNotFound || got.Header.Get("From") != "errors" || got.Header.Get("Told") != "404 /missing?a=b web text/html" {
		t.Errorf("in place of a 404: %d, %v", got.StatusCode, got.Header)
	}
	if got := ask("/missing", http.Header{"Body": {"text"}}); got.Header.Get("From") != "errors" {
		t.Errorf("in place of a 404 to a POST: %v", got.Header)
	}
	for path, want := range map[string]int{"/": http.StatusOK, "/teapot": http.StatusTeapot} {
		if got := ask(path, nil); got.StatusCode != want || got.Header.Get("From") == "errors" {
			t.Errorf("%s: %d from %s", path, got.StatusCode, got.Header.Get("From"))
		}
	}
	if got := served(t, &model.Action{Backends: to("empty"), Errors: codes}, pools)("/", nil); got.Header.Get("Told") != "503 / web" {
		t.Errorf("in place of a backend without endpoints: %v", got.Header)
	}
	codes.Pool = "empty"
	if got := served(t, &model.Action{Backends: to("web"), Errors: codes}, pools)("/missing", nil); got.StatusCode != http.StatusNotFound {
		t.Errorf("nobody else answers, and the answer is %d", got.StatusCode)
	}
	for name, backends := range map[string][]model.Backend{"no endpoint": to("empty"), "no Service": {{Invalid: "there is no Service", Weight: 1}}} {
		if got := served(t, &model.Action{Backends: backends, Fallback: "web"}, pools)("/", nil); got.StatusCode != http.StatusOK || got.Header.Get("From") != "web" {
			t.Errorf("%s: answer %d", name, got.StatusCode)
		}
	}
}

// TestAuthMirror: a copy says of the client what the request does, and nothing that the
// client says of that itself.
func TestAuthMirror(t *testing.T) {
	copies := make(chan http.Header, 1)
	action := &model.Action{
		Backends: to("web"), Mirrors: []model.Mirror{{Pool: "copy", Numerator: 1, Denominator: 1}},
		Auth:    &model.Auth{URL: "http://auth/", Pool: "auth", Method: http.MethodGet, Headers: []string{"X-User", "X-Role"}},
		Request: model.HeaderEdit{Set: []model.Header{{Name: "X-Team", Value: "red"}}},
	}
	ask := served(t, action, map[string]http.HandlerFunc{
		"auth": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-User", "ada") },
		"web":  answering("web"), "copy": func(_ http.ResponseWriter, r *http.Request) { copies <- r.Header },
	})
	ask("/", http.Header{"X-User": {"eve"}, "X-Role": {"root"}, "X_role": {"root"}, "X.user": {"eve"}, "X_team": {"blue"}})
	got := <-copies
	for name, want := range map[string]string{"X-User": "ada", "X-Role": "", "X_role": "", "X.user": "", "X-Team": "red", "X_team": ""} {
		if v := strings.Join(got[http.CanonicalHeaderKey(name)], ","); v != want {
			t.Errorf("the copy has %s: %q, want %q", name, v, want)
		}
	}
}

// TestAuthLoop: whoever is to say whether requests are let in and asks that itself is
// found out, whatever headers its questions are to have.
func TestAuthLoop(t *testing.T) {
	action := &model.Action{Backends: to("web"), Auth: &model.Auth{URL: "http://auth/", Pool: "auth", Method: http.MethodGet, Request: []model.Header{{Name: "X-Sent-From", Value: "elsewhere"}}}}
	asked := make(chan string, 1)
	ask := served(t, action, map[string]http.HandlerFunc{"web": answering("web"), "auth": func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("X-Sent-From") }})
	ask("/", nil)
	if got := <-asked; got != sentFrom {
		t.Errorf("the question is sent from %q", got)
	}
}
