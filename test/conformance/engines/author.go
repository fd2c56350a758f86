package engines

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

// lineEnds are texts by which the author of a route would have a message end early, or
// begin another one.
var lineEnds = []string{
	"a b", "a HTTP/1.1\r\nInjected: 1\r\n\r\nGET /injected HTTP/1.1\r\nHost: h\r\n\r\n", "a\r\nInjected: 1", "a\nInjected: 1", "a\rInjected: 1", "a\x00b", "a\tb", "a#b", "a?b", "é", "a%0d%0aInjected: 1", `a"b`, "a; Domain=example.com",
}

// testAuthor: whatever the author of a route writes where a text is asked for, endpoints
// get one request for each, and clients one answer.
func testAuthor(t *testing.T, r *rig) {
	var asked []string
	e := r.endpoint("e", func(w http.ResponseWriter, q *http.Request) {
		asked = append(asked, q.RequestURI)
		if q.Header.Get("Injected") != "" {
			asked = append(asked, "Injected")
		}
		_, _ = io.WriteString(w, "fine") // an error shows in the answer
	})
	for _, text := range lineEnds {
		for name, change := range map[string]func(*model.Action){
			"full path": func(a *model.Action) {
				a.Rewrite = &model.Rewrite{Path: &model.PathEdit{Full: true, Value: "/" + text}}
			},
			"prefix": func(a *model.Action) { a.Rewrite = &model.Rewrite{Path: &model.PathEdit{Value: "/" + text}} },
			"backend's path": func(a *model.Action) {
				a.Backends[0].Rewrite = &model.Rewrite{Path: &model.PathEdit{Full: true, Value: "/" + text}}
			},
			"host":           func(a *model.Action) { a.Rewrite = &model.Rewrite{Host: text} },
			"request header": func(a *model.Action) { a.Request.Set = []model.Header{{Name: "X-Set", Value: text}} },
			"request host":   func(a *model.Action) { a.Request.Set = []model.Header{{Name: "Host", Value: text}} },
			"answer header":  func(a *model.Action) { a.Response.Add = []model.Header{{Name: "X-Set", Value: text}} },
			"header's name":  func(a *model.Action) { a.Request.Set = []model.Header{{Name: "X-" + text, Value: "1"}} },
			"answer's name":  func(a *model.Action) { a.Response.Set = []model.Header{{Name: "X-" + text, Value: "1"}} },
			"redirect": func(a *model.Action) {
				a.Redirect = &model.Redirect{Status: 302, Path: &model.PathEdit{Full: true, Value: "/" + text}}
			},
			"redirect host":  func(a *model.Action) { a.Redirect = &model.Redirect{Status: 302, Host: text} },
			"whole":          func(a *model.Action) { a.Redirect = &model.Redirect{Status: 302, Whole: "https://x/" + text} },
			"cookie":         func(a *model.Action) { a.Affinity = &model.Affinity{Cookie: text} },
			"cookie's path":  func(a *model.Action) { a.Affinity = &model.Affinity{Cookie: "c", Path: "/" + text} },
			"domain":         func(a *model.Action) { a.Affinity = &model.Affinity{Cookie: "c", Domain: text} },
			"session header": func(a *model.Action) { a.Affinity = &model.Affinity{Header: text} },
			"realm":          func(a *model.Action) { a.BasicAuth = &model.BasicAuth{Realm: text} },
			"cors": func(a *model.Action) {
				a.CORS = &model.CORS{Origins: []string{"*"}, Expose: []string{text}, Methods: []string{text}, Headers: []string{text}}
			},
		} {
			a := to("p")
			change(a)
			r.apply(table([]*model.Rule{below("/", a)}, pool("p", e)))
			for _, request := range []string{
				"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nOrigin: https://o\r\n\r\n", "POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
				"OPTIONS /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nOrigin: https://o\r\nAccess-Control-Request-Method: GET\r\n\r\n",
			} {
				asked = nil
				got := r.whole(t, request)
				answers, injected := 0, false
				for line := range strings.FieldsFuncSeq(got, func(c rune) bool { return c == '\r' || c == '\n' || c == 0 }) {
					if strings.HasPrefix(line, "HTTP/1.") {
						answers++
					}
					injected = injected || strings.HasPrefix(line, "Injected") || strings.HasPrefix(strings.ToLower(line), "set-cookie") && strings.Contains(line, "; Domain=example.com")
				}
				if answers != 1 || injected || len(asked) > 1 {
					t.Errorf("%s %q: the endpoint was asked %q, and %d answers came:\n%q", name, text, asked, answers, got)
				}
			}
		}
	}
}

// whole is all that comes for a request until nothing more does.
func (r *rig) whole(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", r.address().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // it is over
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if err != nil {
		t.Logf("%v", err)
	}
	return string(text)
}
