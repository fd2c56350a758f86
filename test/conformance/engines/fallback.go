package engines

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

// testFallback: a pool is asked where the backend has no endpoint, or is none, for as
// long as that is so.
func testFallback(t *testing.T, r *rig) {
	first, other := r.endpoint("first", nil), r.endpoint("other", nil)
	named := func(path string, a *model.Action, fallback string) *model.Rule {
		a.Fallback = fallback
		return below(path, a)
	}
	edited := to("ns/s:80")
	edited.Backends[0].Response.Set = []model.Header{{Name: "Own", Value: "1"}}
	rules := []*model.Rule{
		named("/a", to("ns/s:80"), "ns/other:80"),
		named("/edited", edited, "ns/other:80"),
		named("/none", &model.Action{Backends: []model.Backend{{Invalid: "there is no Service", Weight: 1}}}, "ns/other:80"),
		named("/unknown", to("ns/s:80"), "ns/unknown:80"),
		named("/empty", to("ns/s:80"), "ns/empty:80"),
		below("/alone", to("ns/s:80")),
	}
	s := table(rules).Sockets[0]
	r.apply(tableOf(s, pool("ns/s:80"), pool("ns/other:80", other), pool("ns/empty:80")))
	c := client(r.address(), http1)
	defer c.CloseIdleConnections()
	const none, failed = "Service Unavailable", "Internal Server Error"
	check := func(what string, want map[string]string) {
		t.Helper()
		for path, endpoint := range want {
			methods := []string{http.MethodGet, http.MethodPost}
			if endpoint == none || endpoint == failed { // an engine may close the connection on a body that nobody reads
				methods = methods[:1]
			}
			for _, method := range methods {
				q, err := http.NewRequestWithContext(t.Context(), method, "http://h"+path, strings.NewReader(strings.TrimPrefix(method, http.MethodGet)))
				if err != nil {
					t.Fatal(err)
				}
				answer, _, err := ask(c, q)
				if err != nil {
					t.Fatal(err)
				}
				got := answer.Header.Get("Endpoint")
				if got == "" {
					got = http.StatusText(answer.StatusCode)
				}
				if got != endpoint || (answer.Header.Get("Own") != "") != (path == "/edited" && endpoint == "first") {
					t.Errorf("%s: %s %s: %s, want %s; %v", what, method, path, got, endpoint, answer.Header)
				}
			}
		}
	}
	empty := map[string]string{"/a": "other", "/edited": "other", "/none": "other", "/unknown": none, "/empty": none, "/alone": none}
	check("no endpoint", empty)
	r.apply(tableOf(s, pool("ns/s:80", first), pool("ns/other:80", other), pool("ns/empty:80")))
	check("an endpoint", map[string]string{"/a": "first", "/edited": "first", "/none": "other", "/unknown": "first", "/empty": "first", "/alone": "first"})
	r.apply(tableOf(s, pool("ns/s:80"), pool("ns/other:80", other), pool("ns/empty:80")))
	check("none again", empty)
	r.apply(tableOf(s, pool("ns/s:80"), pool("ns/empty:80")))
	check("nobody else", map[string]string{"/a": none, "/edited": none, "/none": failed})
	r.apply(tableOf(s, pool("ns/s:80"), pool("ns/other:80", other), pool("ns/empty:80")))
	check("somebody else again", empty)
}
