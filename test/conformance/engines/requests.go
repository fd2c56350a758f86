package engines

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// testDecide asks an engine with random tables what Decide is asked, and
// compares the rule that answers.
func testDecide(t *testing.T, r *rig) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := r.endpoint("e", nil)
	for range 5 {
		s := randomSocket(random, randomMatch)
		r.apply(tableOf(s, pool("ns/s:80", e)))
		c := client(r.address(), http1)
		for range 60 {
			r.compare(t, c, s, randomRequest(t, random))
		}
		c.CloseIdleConnections()
	}
}

// compare asks, and holds the answer against what is decided.
func (r *rig) compare(t *testing.T, c *http.Client, s *model.Socket, q *http.Request) {
	t.Helper()
	m := read(q)
	want := s.Decide(m)
	checkTrace(t, s, m, &want)
	response, _, err := ask(c, q)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus, wantRule := want.Status, ""
	if want.Status == 0 {
		wantStatus, wantRule = http.StatusOK, want.Rule.Action.Rule
	}
	if got := response.Header.Get("Location"); got != want.Location {
		t.Fatalf("%s %s%s: sent to %q, want %q", q.Method, q.Host, q.URL.RequestURI(), got, want.Location)
	}
	if got := response.Header.Get("Rule"); response.StatusCode != wantStatus || got != wantRule {
		t.Fatalf("%s %s%s %q: answer %d by rule %q, want %d by rule %q\n%s", q.Method, q.Host, q.URL.RequestURI(), q.Header, response.StatusCode, got, wantStatus, wantRule,
			(&model.Table{Sockets: []*model.Socket{s}}))
	}
}

// read is a request as an engine is to read it.
func read(q *http.Request) *model.Request {
	m := policy.Read(q, false)
	m.Host = q.Host
	return &m
}

// checkTrace: what people are told agrees with what is decided.
func checkTrace(t *testing.T, s *model.Socket, m *model.Request, d *model.Decision) {
	t.Helper()
	if d.Status == http.StatusBadRequest { // the path has two readings, and each its rule
		return
	}
	var found *model.Rule
	for _, step := range s.Trace(m) {
		if step.Why == "" {
			found = step.Rule
		}
	}
	if found != d.Rule {
		t.Fatalf("the trace ends with %v, the decision is %v", found, d.Rule)
	}
}

var (
	someHosts   = []string{"a.example.com", "b.a.example.com", "example.com", "example.org", "x.org"}
	somePattern = []string{"", "*.example.com", "*.a.example.com", "a.example.com", "example.com", "example.org"}
	somePaths   = []string{"/", "/a", "/a/", "/a/b", "/ab", "/a/b/c", "/A", "/a%2Fb", "/a/./b", "/a/../b", "//a", "/a;x"}
	someMethods = []string{"GET", "POST", "PUT"}
	someValues  = []string{"1", "2", "one"}
)

func one[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

func randomSocket(random *rand.Rand, match func(*rand.Rand) model.Match) *model.Socket {
	s := &model.Socket{Name: "ns/gw:80", Port: 80, OneLabel: random.IntN(2) == 0}
	n := 0
	for _, hostname := range some(random, somePattern) {
		l := &model.Listener{Name: "ns/gw/" + hostname, Hostname: hostname}
		var hosts []*model.Host
		for _, pattern := range some(random, somePattern) {
			both, ok := model.Intersect(hostname, pattern)
			if !ok || slices.ContainsFunc(hosts, func(h *model.Host) bool { return h.Hostname == both }) {
				continue
			}
			h := &model.Host{Hostname: both}
			for range 1 + random.IntN(4) {
				n++
				a := to("ns/s:80")
				a.Rule = fmt.Sprint(n)
				a.Response.Set = []model.Header{{Name: "Rule", Value: a.Rule}}
				switch random.IntN(8) {
				case 0:
					a.RequireHTTPS = http.StatusPermanentRedirect
				case 1:
					a.Answer = http.StatusNotFound
				}
				h.Rules = append(h.Rules, &model.Rule{Match: match(random), Action: a})
			}
			slices.SortStableFunc(h.Rules, func(a, b *model.Rule) int { return a.Match.Compare(&b.Match) })
			hosts = append(hosts, h)
		}
		l.SetHosts(hosts)
		s.Listeners = append(s.Listeners, l)
	}
	slices.SortFunc(s.Listeners, func(a, b *model.Listener) int { return model.CompareHostnames(a.Hostname, b.Hostname) })
	return s
}

func some(random *rand.Rand, list []string) []string {
	list = slices.Clone(list)
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:1+random.IntN(len(list))]
}

func randomMatch(random *rand.Rand) model.Match {
	m := model.Match{Kind: model.PathKind(random.IntN(3)), Path: policy.RulePath(one(random, somePaths))}
	if m.Kind == model.PathRegexp {
		m.Path = "/a.*"
		m.Regexp = regexp.MustCompile("^(?:" + m.Path + ")$")
	}
	if random.IntN(3) == 0 {
		m.Method = one(random, someMethods)
	}
	if random.IntN(4) == 0 {
		m.Headers = []model.ValueMatch{{Name: "Version", Value: one(random, someValues)}}
	}
	if random.IntN(4) == 0 {
		m.Query = []model.ValueMatch{{Name: "v", Value: one(random, someValues)}}
	}
	return m
}

func randomRequest(t *testing.T, random *rand.Rand) *http.Request {
	url := "http://" + one(random, someHosts) + one(random, somePaths)
	if random.IntN(2) == 0 {
		url += "?v=" + one(random, someValues)
	}
	q, err := http.NewRequestWithContext(t.Context(), one(random, someMethods), url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if random.IntN(2) == 0 {
		q.Header.Set("Version", one(random, someValues))
	}
	return q
}
