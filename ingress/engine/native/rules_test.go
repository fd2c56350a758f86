package native

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestAnyOf: a client is let in by its address, by a password, or by who is asked.
func TestAnyOf(t *testing.T) {
	password := &model.BasicAuth{Realm: "r", Users: map[string]string{"ada": "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="}}
	asked := &model.Auth{URL: "http://auth/", Pool: "auth", Method: http.MethodGet}
	here, elsewhere := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	const good, bad = "Basic YWRhOnBhc3N3b3Jk", "Basic YWRhOndyb25n" // ada:password, ada:wrong
	for name, test := range map[string]struct {
		action        model.Action
		authorization string
		want          int
	}{
		"its address":                    {model.Action{Allow: here, BasicAuth: password}, "", 200},
		"a password":                     {model.Action{Allow: elsewhere, BasicAuth: password}, good, 200},
		"a password, denied elsewhere":   {model.Action{Deny: here, BasicAuth: password}, good, 200},
		"none of them":                   {model.Action{Allow: elsewhere, BasicAuth: password}, bad, 401},
		"nothing to ask but the address": {model.Action{Allow: elsewhere}, good, 403},
		"no list":                        {model.Action{BasicAuth: password}, "", 401},
		"who is asked, not the password": {model.Action{Allow: elsewhere, BasicAuth: password, Auth: asked}, "leave", 200},
		"the password, nobody is asked":  {model.Action{Allow: elsewhere, BasicAuth: password, Auth: asked}, good, 200},
		"nobody":                         {model.Action{Allow: elsewhere, BasicAuth: password, Auth: asked}, bad, 403},
	} {
		t.Run(name, func(t *testing.T) {
			action := test.action
			action.Backends, action.AnyOf = to("web"), true
			ask := served(t, &action, map[string]http.HandlerFunc{"web": answering("web"), "auth": func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "leave" {
					w.WriteHeader(http.StatusForbidden)
				}
			}})
			if got := ask("/", http.Header{"Authorization": {test.authorization}}); got.StatusCode != test.want {
				t.Errorf("answer %d, want %d", got.StatusCode, test.want)
			}
		})
	}
}

// TestLimitsBeforeAccess: who guesses passwords is held up as often as who is let in.
func TestLimitsBeforeAccess(t *testing.T) {
	action := model.Action{Backends: to("web"), BasicAuth: &model.BasicAuth{Realm: "r"}, Limit: &model.Limit{PerSecond: 1e-6, Burst: 3, Connections: 1}}
	ask := served(t, &action, map[string]http.HandlerFunc{"web": answering("web")})
	for i, want := range []int{401, 401, 401, 503, 503} {
		if got := ask("/", http.Header{"Authorization": {"Basic YWRhOndyb25n"}}); got.StatusCode != want {
			t.Errorf("guess %d: answer %d, want %d", i, got.StatusCode, want)
		}
	}
}

// TestLimitsShared: all rules of an Ingress count together, and a limit that is changed
// holds for clients that never pause.
func TestLimitsShared(t *testing.T) {
	rule := func(path, of string, perSecond float64) *model.Rule {
		return &model.Rule{Match: model.Match{Kind: model.PathPrefix, Path: path}, Action: &model.Action{Rule: path, Backends: to("web"), Limit: &model.Limit{Of: of, PerSecond: perSecond, Burst: 2}}}
	}
	table := func(perSecond float64) *model.Table {
		l := &model.Listener{Name: "l"}
		l.SetHosts([]*model.Host{{Rules: []*model.Rule{rule("/a", "one", perSecond), rule("/b", "one", perSecond), rule("/c", "other", perSecond)}}})
		return &model.Table{
			Sockets: []*model.Socket{{Name: "s", Port: 80, Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{l}}},
			Pools:   map[string]*model.Pool{"web": poolAt("web", listening(t, answering("web")))},
		}
	}
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(t.Context()) })
	ask := func(path string, want int) {
		t.Helper()
		response, err := http.Get("http://" + e.Sockets()["s"].String() + path) //nolint:noctx // it is answered
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // it says nothing
		if response.StatusCode != want {
			t.Errorf("%s: answer %d, want %d", path, response.StatusCode, want)
		}
	}
	if err := e.Apply(table(1e-6)); err != nil {
		t.Fatal(err)
	}
	ask("/a", 200)
	ask("/b", 200)
	ask("/a", 503)
	ask("/b", 503)
	ask("/c", 200)
	if err := e.Apply(table(1e6)); err != nil {
		t.Fatal(err)
	}
	ask("/a", 200)
}

// TestAuthCookies: the cookies of who is asked come with errors only if the rule says so.
func TestAuthCookies(t *testing.T) {
	for _, always := range []bool{false, true} {
		auth := &model.Auth{URL: "http://auth/", Pool: "auth", Method: http.MethodGet, Cookies: always}
		ask := served(t, &model.Action{Backends: to("web"), Auth: auth}, map[string]http.HandlerFunc{
			"auth": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "session=1") },
			"web": func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/error" {
					w.WriteHeader(http.StatusTeapot)
				}
			},
		})
		if got := ask("/", nil).Header.Get("Set-Cookie"); got != "session=1" {
			t.Errorf("always %v: cookie %q", always, got)
		}
		if got := ask("/error", nil).Header.Get("Set-Cookie"); (got == "session=1") != always {
			t.Errorf("always %v: cookie of an error %q", always, got)
		}
	}
}

// TestRate: an answer takes as long as its rate says, but for what is sent at once.
func TestRate(t *testing.T) {
	ask := served(t, &model.Action{Backends: to("web"), Rate: &model.Rate{PerSecond: 10 << 10, After: 8 << 10}}, map[string]http.HandlerFunc{
		"web": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", map[string]int{"/short": 4 << 10, "/long": 12 << 10}[r.URL.Path])) // an error shows in the answer
		},
	})
	for path, least := range map[string]time.Duration{"/short": 0, "/long": 400 * time.Millisecond} {
		begun := time.Now()
		body, err := io.ReadAll(ask(path, nil).Body)
		if took := time.Since(begun); err != nil || len(body) < 4<<10 || took < least {
			t.Errorf("%s: %d bytes in %v, %v; want %v or more", path, len(body), took, err, least)
		}
	}
}

// TestTrace: a trace is told of a request once, also on the short way, and endpoints get
// what it puts into headers; none is made where the rule wants none.
func TestTrace(t *testing.T) {
	ended := make(chan string, 8)
	e, err := New(Options{Trace: func(h http.Header, trusted bool) func(*Access) {
		h.Set("Traceparent", "ours")
		return func(a *Access) { ended <- fmt.Sprintf("%s %d %s %t", a.Path, a.Status, a.Route, trusted) }
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(t.Context()) })
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, r.Header.Get("Traceparent")) // an error shows in the answer
	}))
	t.Cleanup(backend.Close)
	rule := func(path string, a *model.Action) *model.Rule {
		a.Route, a.Backends = "r", to("web")
		return &model.Rule{Match: model.Match{Kind: model.PathPrefix, Path: path}, Action: a}
	}
	l := &model.Listener{Name: "l"}
	l.SetHosts([]*model.Host{{Rules: []*model.Rule{
		rule("/short", &model.Action{}), rule("/long", &model.Action{Timeout: time.Minute}), rule("/none", &model.Action{Untraced: true}), rule("/broken", &model.Action{Invalid: "x"}),
	}}})
	table := &model.Table{Sockets: []*model.Socket{{Name: "s", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Port: 80, Listeners: []*model.Listener{l}}}, Pools: map[string]*model.Pool{"web": poolAt("web", backend.Listener.Addr())}}
	if err := e.Apply(table); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, body, told string }{
		{"/short", "ours", "/short 200 r false"}, {"/long", "ours", "/long 200 r false"}, {"/none", "theirs", ""}, {"/broken", "Internal Server Error\n", "/broken 500 r false"}, {"/gone", "Not Found\n", "/gone 404  false"},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.Sockets()["s"].String()+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Traceparent", "theirs")
		q.Close = test.path != "/short"
		response, err := http.DefaultTransport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(body) != test.body {
			t.Errorf("%s: answer %q, %v", test.path, body, err)
		}
		if test.told == "" {
			continue // the next one would have its word
		}
		select {
		case got := <-ended:
			if got != test.told {
				t.Errorf("%s: told %q, want %q", test.path, got, test.told)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: nothing was told", test.path)
		}
	}
}

// TestMirrorEdits: copies have another host, and no body.
func TestMirrorEdits(t *testing.T) {
	copies := make(chan string, 1)
	mirror := model.Mirror{Pool: "mirror", Numerator: 1, Denominator: 1, Host: "copy.example", Bodiless: true}
	ask := served(t, &model.Action{Backends: to("web"), Mirrors: []model.Mirror{mirror}}, map[string]http.HandlerFunc{
		"web": answering("web"),
		"mirror": func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // an error shows in what is told
			copies <- r.Method + " " + r.Host + r.URL.Path + " " + string(body)
		},
	})
	body, err := io.ReadAll(ask("/x", http.Header{"Body": {"text"}}).Body)
	if err != nil || string(body) != "POST /x text" {
		t.Errorf("the endpoint got %q, %v", body, err)
	}
	select {
	case got := <-copies:
		if got != "POST copy.example/x " {
			t.Errorf("the copy is %q", got)
		}
	case <-time.After(time.Minute):
		t.Error("there is no copy")
	}
}

// TestRetryWithin: no other try begins after some time.
func TestRetryWithin(t *testing.T) {
	for _, within := range []time.Duration{0, time.Millisecond, time.Hour} {
		tries := 0
		ask := served(t, &model.Action{Backends: to("web"), Retry: &model.Retry{Codes: []int{503}, Attempts: 3, Within: within}}, map[string]http.HandlerFunc{
			"web": func(w http.ResponseWriter, _ *http.Request) {
				tries++
				time.Sleep(2 * time.Millisecond) // longer than the first limit
				w.WriteHeader(http.StatusServiceUnavailable)
			},
		})
		ask("/", nil)
		if want := map[bool]int{true: 1, false: 4}[within == time.Millisecond]; tries != want {
			t.Errorf("within %v: %d tries, want %d", within, tries, want)
		}
	}
}

// TestKeepCookie: a client whose request another endpoint had to answer keeps its cookie,
// or gets another one.
func TestKeepCookie(t *testing.T) {
	for _, keep := range []bool{false, true} {
		breaks := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
		broken, well := poolAt("web", listening(t, http.HandlerFunc(breaks))), poolAt("web", listening(t, answering("web")))
		p := &model.Pool{Name: "web", Endpoints: append(broken.Endpoints, well.Endpoints...)}
		e := withRule(t, &model.Action{Backends: to("web"), Affinity: &model.Affinity{Cookie: "C", Keep: keep}}, map[string]*model.Pool{"web": p})
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.Sockets()["s"].String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.AddCookie(&http.Cookie{Name: "C", Value: endpointID(broken.Endpoints[0].Addr)})
		response, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || (len(response.Cookies()) == 0) != keep {
			t.Errorf("keep %v: answer %d with cookies %v", keep, response.StatusCode, response.Cookies())
		}
	}
}
