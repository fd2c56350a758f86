package engines

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// Texts that engines must take for nothing but texts, whatever they are written
// into: configurations, commands, programs, expressions.
var (
	anyTexts = []string{
		"", " ", "a b", "a\tb", "two\nlines", "cr\r\nlf", "\x00", "\x7f", "é", "\xff\xfe", `"`, `'`, `a"b'c`, `\`, `\n`, `\"`, "#", "# comment", ";", "; show info", "<<", "a <<", "%[src]", "%%", "%", "${HOME}", "$1",
		"$(id)", "`id`", "{", "}", "} if TRUE", "{ var(txn.v) -m found }", "]]", "--[[", "--", "]]..os.exit()..[[", "a,b", "a|b", "*", "@", "a=b", "a&b", "+", "a+b", "%41", "%zz", strings.Repeat("long ", 500),
	}
	anyPaths = []string{
		"/", "/a", "/a/", "/a b", `/a"b`, "/a'b", "/a;b", "/a%20b", "/a%22b", "/a$b", "/a\\b", "/a%5Cb", "/%5B", "/a#b", "/a%23b", "/a|b", "/a%7Cb", "/a<<", "/a%3C%3C", "/a*", "/a{b}", "/%C3%A9", "/é", "/a\nb", "/a\x00b", "//", "/a//b", "/a/b",
		"/a=b", "/a&b", "/a+b", "/a,b", "/-", "/a:b", "/a@b", "/a(b)", "/a!b", "/~a", "/a%00b",
	}
	anyRegexps = []string{
		"/a.*", "(?i)/A", "/(a+)+b", "/a|/b", "^/a$", "/[^/]+", `/a\.b`, `/\w+`, `/\W`, `/a\b.*`, "/(?:a|b)*", `/a{1,3}`, "/é", `/\pL+`, "/[[:alpha:]]+", `/%[0-9A-F]{2}.*`, `/a"b`, "/a'b", "/$", "/.?/?.?", `\Q/a\E.*`, "/(a)(b)?", `/a[;,"'#]b`, "", ".*", "x*",
	}
	anyHosts = []string{"", "*.example.com", "a.example.com", "a b", `a"b`, "a|b", "a;b", "*", "*.*", "a\nb", "é.org", "%[src]", "h", "-"}
)

// testDecideAnything: tables with texts of all kinds are served like others, one
// after the other, and decide the same.
func testDecideAnything(t *testing.T, r *rig) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := r.endpoint("e", nil)
	for range 8 {
		s := randomSocket(random, anyMatch)
		for _, l := range s.Listeners {
			for _, h := range l.Hosts() {
				for _, rule := range h.Rules {
					anyAction(random, rule.Action)
				}
			}
		}
		odd := &model.Listener{Name: one(random, anyTexts), Hostname: one(random, anyHosts[3:])}
		named := to("ns/s:80")
		named.Response.Set = []model.Header{{Name: "Rule", Value: named.Rule}}
		odd.SetHosts([]*model.Host{{Hostname: odd.Hostname, Rules: []*model.Rule{below("/", named)}}})
		s.Listeners = append(s.Listeners, odd)
		r.apply(tableOf(s, pool("ns/s:80", e)))
		c := client(r.address(), http1)
		for range 60 {
			r.compare(t, c, s, anyRequest(t, random))
		}
		c.CloseIdleConnections()
	}
}

func anyMatch(random *rand.Rand) model.Match {
	m := model.Match{Kind: model.PathKind(random.IntN(3)), Path: one(random, anyPaths)}
	if m.Kind == model.PathRegexp {
		m.Path = one(random, anyRegexps)
		m.Regexp = regexp.MustCompile("^(?:" + m.Path + ")$")
		if random.IntN(3) == 0 {
			m.Regexp = regexp.MustCompile(m.Path) // anywhere
		}
	}
	if random.IntN(4) == 0 {
		m.Method = one(random, append([]string{`G"T`, "a b"}, someMethods...))
	}
	if random.IntN(3) == 0 {
		m.Headers = []model.ValueMatch{anyValue(random, one(random, []string{"Version", "Host", "X-Odd"}))}
	}
	if random.IntN(3) == 0 {
		m.Query = []model.ValueMatch{anyValue(random, one(random, append([]string{"v"}, anyTexts...)))}
	}
	return m
}

func anyValue(random *rand.Rand, name string) model.ValueMatch {
	v := model.ValueMatch{Name: name, Value: one(random, anyTexts)}
	if random.IntN(3) == 0 {
		v.Value = one(random, anyRegexps)
		v.Regexp = regexp.MustCompile("^(?:" + v.Value + ")$")
	}
	return v
}

// anyAction has a rule do things with such texts that change nothing of what is compared.
func anyAction(random *rand.Rand, a *model.Action) {
	text := func() string {
		return strings.Map(func(r rune) rune { // as the API has it for headers
			if r < ' ' || r == 0x7f {
				return '_'
			}
			return r
		}, one(random, anyTexts))
	}
	if random.IntN(2) == 0 {
		a.Request.Set = []model.Header{{Name: "X-Set", Value: text()}}
		a.Response.Add = []model.Header{{Name: "X-Add", Value: text()}}
	}
	if random.IntN(4) == 0 {
		a.Rewrite = &model.Rewrite{Path: &model.PathEdit{Value: "/" + url.PathEscape(text()), Full: random.IntN(2) == 0}}
	}
	if random.IntN(4) == 0 {
		a.CORS = &model.CORS{Origins: []string{text(), "https://*.example.com"}, Methods: []string{"GET"}, Headers: []string{text()}, Expose: []string{text()}}
	}
	a.Route = fmt.Sprintf("HTTPRoute ns/%s", one(random, anyTexts))
}

func anyRequest(t *testing.T, random *rand.Rand) *http.Request {
	q, err := http.NewRequestWithContext(t.Context(), one(random, someMethods), "http://"+one(random, someHosts)+"/", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if path := one(random, anyPaths); !strings.ContainsAny(path, " \n\x00") && !strings.Contains(path, "é") {
		if _, err := url.PathUnescape(path); err == nil {
			policy.SetPath(q.URL, path)
		}
	}
	if random.IntN(2) == 0 {
		var pairs []string
		for range 1 + random.IntN(3) {
			pairs = append(pairs, url.QueryEscape(one(random, append([]string{"v", "v"}, anyTexts...)))+"="+url.QueryEscape(one(random, anyTexts)))
		}
		q.URL.RawQuery = strings.Join(pairs, "&")
	}
	for _, name := range []string{"Version", "X-Odd"} {
		for range random.IntN(3) {
			if text := one(random, anyTexts); !strings.ContainsAny(text, "\x00\r\n\x7f\t") && text == strings.TrimSpace(text) {
				q.Header.Add(name, text)
			}
		}
	}
	return q
}
