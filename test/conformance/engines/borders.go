package engines

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// Requests that are written in other ways than most are. What a short way of an
// engine's takes for itself must be decided as all else is.
var (
	borderHosts = []string{"%s", "%s", "%s:80", "%s:8080", "%s.", "%s.:80", "UP"}
	borderPaths = []string{"/", "/a", "/a/", "/a/b", "/ab", "/a/b/c", "/A", "/a%2Fb", "/a/./b", "/a/../b", "/..", "/.", "/a/.b", "/a/b.", "/a/...", "/%2e%2E/a", "/a/%2e", "/a%2e", "//a", "//", "/a;x", "/a%00", "/%41", "/a/.well-known/x", "/a,b",
		"/a|b", `/a"b`, "/a<b>", `/a\b`, `/a/..\b`, "/a^b`c", "/{a}", "/a/../b|c", "/a|b/%7C"}
	borderQueries = []string{"", "", "", "?", "?v=1", "?v=/../a", "?v=2&v=1", "?a?b", "?v=%2e"}
	borderMethods = []string{"GET", "GET", "GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "DELETE", "PATCH", "BREW", "get"}
	borderHeaders = []string{
		"Version: 1", "Version: 2", "version: one", "X-A:", "X-A: a\tb", "X-A: \xff", "x-a:b", "X-Long: " + strings.Repeat("a", 4000), "Cookie: a=b; c=d", "Accept: */*", "Hostage: x", "Tea: x",
		"Connection: close", "Connection: keep-alive", "Connection: Keep-Alive", "Connection: X-A\r\nX-A: 1", "Connection: keep-alive, X-A\r\nX-A: 1",
		"Keep-Alive: 1", "Proxy-Connection: x", "Proxy-Authorization: x", "Forwarded: for=1.2.3.4", "TE: trailers", "TE: gzip",
		"X-Forwarded-For: 1.2.3.4", "x-forwarded-for: 1.2.3.4", "X-Forwarded-Host: evil", "X-FORWARDED-PROTO: https", "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8",
	}
)

// testBorders asks with tables in which some hosts' requests all go to one backend
// as they are, and others' don't: who answers, and what the endpoint is told.
func testBorders(t *testing.T, r *rig) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var pools []*model.Pool
	for i := range 6 {
		name := fmt.Sprint("e", i)
		pools = append(pools, pool("ns/"+name+":80", r.endpoint(name, func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body) // an error shows in its length
			w.Header().Set("Endpoint", name)
			w.Header().Set("Saw", saw(q.Method, q.RequestURI, q.Host, q.Header, len(body)))
		})))
	}
	for range 6 {
		s := borderSocket(random, pools)
		r.apply(tableOf(s, pools...))
		for range 80 {
			r.border(t, random, s)
		}
	}
}

// borderSocket is one whose rules each have a pool. Many of its hosts have but one
// rule, and that nothing else.
func borderSocket(random *rand.Rand, pools []*model.Pool) *model.Socket {
	s := randomSocket(random, randomMatch)
	n := random.IntN(len(pools))
	for _, l := range s.Listeners {
		for _, h := range l.Hosts() {
			kinds := 8
			if !strings.HasPrefix(h.Hostname, "*") && random.IntN(2) == 0 {
				h.Rules, kinds = []*model.Rule{{Match: model.Match{Kind: model.PathPrefix, Path: "/"}}}, 100
			}
			for _, rule := range h.Rules {
				n++
				a := to(pools[n%len(pools)].Name)
				switch random.IntN(kinds) {
				case 0:
					a.Response.Set = []model.Header{{Name: "Rule", Value: "edited"}}
				case 1:
					a.Retry = &model.Retry{Attempts: 1, Connection: true}
				}
				rule.Action = a
			}
		}
	}
	return s
}

// border asks once.
func (r *rig) border(t *testing.T, random *rand.Rand, s *model.Socket) {
	t.Helper()
	name := one(random, someHosts)
	host := strings.Replace(one(random, borderHosts), "%s", name, 1)
	if host == "UP" {
		host = strings.ToUpper(name)
	}
	path, query, method, version := one(random, borderPaths), one(random, borderQueries), one(random, borderMethods), "1.1"
	target := path + query
	if random.IntN(8) == 0 && !strings.HasSuffix(host, ":80") { // which is as good as none there (RFC 9110, 4.2.3)
		target = "http://" + host + target
	}
	if random.IntN(8) == 0 {
		version = "1.0"
	}
	lines := []string{"Host: " + host}
	for range random.IntN(3) {
		lines = append(lines, one(random, borderHeaders))
	}
	random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	length, body := 0, ""
	switch random.IntN(5) {
	case 0:
		length = one(random, []int{0, 1, 3000, 40_000})
		lines, body = append(lines, "Content-Length: "+strconv.Itoa(length)), strings.Repeat("x", length)
	case 1:
		if version == "1.1" {
			length = one(random, []int{1, 3000, 40_000})
			lines, body = append(lines, "Transfer-Encoding: chunked"), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", length, strings.Repeat("x", length))
		}
	}
	if length > 0 && (method == "TRACE" || version == "1.0") { // not every method has one (RFC 9110, 9.3; RFC 1945, 7.2)
		method = "PUT"
	}
	request := method + " " + target + " HTTP/" + version + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	m := &model.Request{Method: method, Host: name, RawQuery: strings.TrimPrefix(query, "?"), Header: header(t, lines)}
	m.Path, m.Other = policy.Path(path)
	want := s.Decide(m)
	answer := r.send(t, method, request+body)
	if want.Status != 0 || answer == nil {
		if answer == nil || answer.StatusCode != want.Status {
			t.Fatalf("%q: answer %v, want %d\n%s", request, answer, want.Status, (&model.Table{Sockets: []*model.Socket{s}}))
		}
		return
	}
	told := passedOn(m.Header, host)
	wantSaw := saw(method, m.Path+query, host, told, length)
	endpoint := strings.TrimSuffix(strings.TrimPrefix(want.Rule.Action.Backends[0].Pool, "ns/"), ":80")
	if got := answer.Header.Get("Endpoint"); answer.StatusCode != http.StatusOK || got != endpoint || answer.Header.Get("Saw") != wantSaw {
		t.Fatalf("%q: answer %d by %q, which saw %q; want %q, which sees %q\n%s", request, answer.StatusCode, got, answer.Header.Get("Saw"), endpoint, wantSaw, (&model.Table{Sockets: []*model.Socket{s}}))
	}
}

// send sends bytes on a connection of their own; nil is no answer.
func (r *rig) send(t *testing.T, method, request string) *answer {
	t.Helper()
	c, err := net.Dial("tcp", r.address().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Logf("no answer: %v", err)
		return nil
	}
	_ = response.Body.Close() // it says nothing
	return &answer{StatusCode: response.StatusCode, Header: response.Header}
}

// header is what lines say.
func header(t *testing.T, lines []string) http.Header {
	t.Helper()
	q, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return q.Header
}

// passedOn are the headers that an endpoint gets.
func passedOn(h http.Header, host string) http.Header {
	out := h.Clone()
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Forwarded"} {
		out.Del(name)
	}
	out.Set("X-Real-Ip", "127.0.0.1")
	if out.Del("Te"); slices.Contains(h.Values("Te"), "trailers") {
		out.Set("Te", "trailers")
	}
	out.Set("X-Forwarded-For", "127.0.0.1")
	out.Set("X-Forwarded-Host", host)
	out.Set("X-Forwarded-Proto", "http")
	return out
}

// saw is a line of what an endpoint was told; values are as numbers.
func saw(method, uri, host string, h http.Header, body int) string {
	parts := []string{method, uri, host, strconv.Itoa(body)}
	for name, values := range h {
		switch name {
		case "Accept-Encoding", "Content-Length", "Connection", "User-Agent", "Transfer-Encoding": // about this connection, or an engine's own
			continue
		}
		sum := fnv.New32a()
		_, _ = fmt.Fprintf(sum, "%q", values)
		parts = append(parts, fmt.Sprintf("%s=%x", name, sum.Sum32()))
	}
	slices.Sort(parts[4:])
	return strings.Join(parts, " ")
}
