package native

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

const plainGet = "GET /plain HTTP/1.1\r\nHost: h\r\n\r\n"

// kinds answers each path in its way, and notes what was asked.
type kinds struct {
	mu    sync.Mutex
	asked []string
}

func (k *kinds) serve(c net.Conn, r *bufio.Reader) {
	for q := nextRequest(r); q != nil; q = nextRequest(r) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		k.mu.Lock()
		k.asked = append(k.asked, q.Method+" "+q.URL.Path+string(body))
		k.mu.Unlock()
		answer := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
		switch q.URL.Path {
		case "/chunked":
			answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
		case "/trailer":
			answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nTrailer: Link\r\n\r\n2\r\nok\r\n0\r\nLink: </end>\r\n\r\n"
		case "/end":
			answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nLink: </end>\r\n\r\n"
		case "/early":
			answer = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer
		case "/untyped":
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		case "/none":
			answer = "HTTP/1.1 304 Not Modified\r\nEtag: x\r\nContent-Length: 7\r\n\r\n"
		case "/large":
			answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000)
		case "/cut":
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\nxx")
			return
		}
		if q.Method == http.MethodHead {
			answer, _, _ = strings.Cut(answer, "ok")
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func (k *kinds) take() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.asked
	k.asked = nil
	return list
}

// TestSimpleAndOthers: requests of all kinds on one connection are answered in order,
// each by what the endpoint was asked once, whichever comes after whichever.
func TestSimpleAndOthers(t *testing.T) {
	k := &kinds{}
	at := front(t, k.serve)
	for name, test := range map[string]struct {
		send, method, asked, body string
		check                     func(*http.Response) bool
	}{
		"chunked":   {send: "GET /chunked HTTP/1.1\r\nHost: h\r\n\r\n", asked: "GET /chunked", body: "ok"},
		"trailer":   {send: "GET /trailer HTTP/1.1\r\nHost: h\r\n\r\n", asked: "GET /trailer", body: "ok", check: func(r *http.Response) bool { return r.Trailer.Get("Link") == "</end>" }},
		"end":       {send: "GET /end HTTP/1.1\r\nHost: h\r\n\r\n", asked: "GET /end", body: "ok", check: func(r *http.Response) bool { return r.Trailer.Get("Link") == "</end>" }},
		"early":     {send: "GET /early HTTP/1.1\r\nHost: h\r\n\r\n", asked: "GET /early", body: "ok", check: func(r *http.Response) bool { return r.Header.Get("Link") == "</a>" }},
		"untyped":   {send: "GET /untyped HTTP/1.1\r\nHost: h\r\n\r\n", asked: "GET /untyped", body: "ok"},
		"large":     {send: "GET /large HTTP/1.1\r\nHost: h\r\n\r\n", asked: "GET /large", body: strings.Repeat("x", 100000)},
		"none":      {send: "GET /none HTTP/1.1\r\nHost: h\r\n\r\n", asked: "GET /none", check: func(r *http.Response) bool { return r.StatusCode == 304 && r.Header.Get("Etag") == "x" }},
		"head":      {send: "HEAD /head HTTP/1.1\r\nHost: h\r\n\r\n", method: http.MethodHead, asked: "HEAD /head", check: func(r *http.Response) bool { return r.ContentLength == 2 }},
		"post":      {send: "POST /post HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", asked: "POST /postabc", body: "ok"},
		"options":   {send: "OPTIONS /o HTTP/1.1\r\nHost: h\r\n\r\n", asked: "OPTIONS /o", body: "ok"},
		"long head": {send: "GET /long HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 2*maxSimpleHead) + "\r\n\r\n", asked: "GET /long", body: "ok"},
		"expected":  {send: "GET /e HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", asked: "GET /e", body: "ok"},
	} {
		for _, order := range []struct {
			name   string
			before int
			apart  bool
		}{{"first", 0, false}, {"in the middle", 2, false}, {"each by itself", 2, true}} {
			c, err := net.Dial("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			requests := append(slices.Repeat([]string{plainGet}, order.before), test.send, plainGet, plainGet)
			want := append(slices.Repeat([]string{"GET /plain"}, order.before), test.asked, "GET /plain", "GET /plain")
			if !order.apart {
				_, err = io.WriteString(c, strings.Join(requests, ""))
			}
			r := bufio.NewReader(c)
			for i, request := range requests {
				method, body := http.MethodGet, "ok"
				if i == order.before {
					method, body = test.method, test.body
				}
				if order.apart {
					_, err = io.WriteString(c, request[:7])
					time.Sleep(time.Millisecond) // the rest comes by itself
					_, _ = io.WriteString(c, request[7:])
				}
				if err != nil {
					t.Fatal(err)
				}
				answer := readAnswer(t, r, method)
				got, err := io.ReadAll(answer.Body)
				if err != nil || string(got) != body || answer.Header.Get("Date") == "" || i == order.before && test.check != nil && !test.check(answer) {
					t.Errorf("%s %s: answer %d: %d %v, %d bytes, %v", name, order.name, i, answer.StatusCode, answer.Header, len(got), err)
				}
			}
			_ = c.Close() // all was read
			if got := k.take(); !slices.Equal(got, want) {
				t.Errorf("%s %s: the endpoint was asked %v, want %v", name, order.name, got, want)
			}
		}
	}
}

// readAnswer reads the next answer past those before it, whose links it takes over.
func readAnswer(t *testing.T, r *bufio.Reader, method string) *http.Response {
	t.Helper()
	link := ""
	for {
		answer, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode >= 200 {
			answer.Header.Set("Link", link)
			return answer
		}
		link = answer.Header.Get("Link")
	}
}

// TestSimpleIsStrict: what net/http's server refuses is refused, as the first request of
// a connection and as a later one, and what hides behind it never reaches an endpoint.
func TestSimpleIsStrict(t *testing.T) {
	k := &kinds{}
	at := front(t, k.serve)
	const hidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, head := range map[string]string{
		"no host":       "GET / HTTP/1.1\r\nX: y\r\n\r\n",
		"two hosts":     "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"bad host":      "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"bad name":      "GET / HTTP/1.1\r\nHost: h\r\nX y: z\r\n\r\n",
		"space in name": "GET / HTTP/1.1\r\nHost: h\r\nContent-Length : 40\r\n\r\n",
		"bad value":     "GET / HTTP/1.1\r\nHost: h\r\nX: a\x01b\r\n\r\n",
		"two lengths":   "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 40\r\n\r\n",
		"bad coding":    "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
		"no version":    "GET /\r\nHost: h\r\n\r\n",
		"version 3":     "GET / HTTP/3.0\r\nHost: h\r\n\r\n",
	} {
		for _, before := range []string{"", plainGet} {
			c, err := net.Dial("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if _, err := io.WriteString(c, before+head+hidden); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			if before != "" {
				_, _ = io.Copy(io.Discard, readAnswer(t, r, http.MethodGet).Body)
			}
			if status := readAnswer(t, r, http.MethodGet).StatusCode; status < 400 {
				t.Errorf("%s after %q: answer %d", name, before, status)
			}
			_ = c.Close() // nothing else counts
			if asked := k.take(); slices.Contains(asked, "GET /hidden") || len(asked) > strings.Count(before, "GET") {
				t.Errorf("%s after %q: the endpoint was asked %v", name, before, asked)
			}
		}
	}
}

// TestSimpleCut: a client sees that an answer isn't whole.
func TestSimpleCut(t *testing.T) {
	k := &kinds{}
	at := front(t, k.serve)
	response, err := http.Get("http://" + at.String() + "/cut")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("an answer of 2 bytes of 100000 ends well, with %d", len(body))
	}
}

// TestSimpleInParts: what an endpoint has sent reaches the client before there is more.
func TestSimpleInParts(t *testing.T) {
	more := make(chan struct{})
	at := front(t, func(c net.Conn, r *bufio.Reader) {
		for q := nextRequest(r); q != nil; q = nextRequest(r) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range 3 {
				<-more
				_, _ = io.WriteString(c, "1\r\nx\r\n")
			}
			_, _ = io.WriteString(c, "0\r\n\r\n")
		}
	})
	response, err := http.Get("http://" + at.String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	for range 3 {
		more <- struct{}{}
		if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
		t.Errorf("after its end: %q, %v", rest, err)
	}
}

// TestSimpleEnds: when the engine ends, connections that are idle are closed at once, and
// a request under way is answered as the last.
func TestSimpleEnds(t *testing.T) {
	asked, go1 := make(chan struct{}), make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				r := bufio.NewReader(c)
				for q := nextRequest(r); q != nil; q = nextRequest(r) {
					if q.URL.Path == "/slow" {
						asked <- struct{}{}
						<-go1
					}
					_, _ = fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	e, err := New(Options{Drain: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	listener := &model.Listener{Name: "l"}
	listener.SetHosts([]*model.Host{{Rules: []*model.Rule{{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: &model.Action{Backends: []model.Backend{{Pool: "p", Weight: 1}}}}}}})
	if err := e.Apply(&model.Table{
		Sockets: []*model.Socket{{Name: "s", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{listener}}},
		Pools:   map[string]*model.Pool{"p": {Name: "p", Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(l.Addr().String()), Weight: 1}}}},
	}); err != nil {
		t.Fatal(err)
	}
	var list []net.Conn
	for _, request := range []string{plainGet, "", "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"} {
		c, err := net.Dial("tcp", e.Sockets()["s"].String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	<-asked
	_, _ = io.Copy(io.Discard, readAnswer(t, bufio.NewReader(list[0]), http.MethodGet).Body)
	closed := make(chan struct{})
	go func() { defer close(closed); e.Close(context.Background()) }()
	for i, c := range list[:2] {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
			t.Errorf("idle connection %d: read %d, %v", i, n, err)
		}
	}
	close(go1)
	if answer := readAnswer(t, bufio.NewReader(list[2]), http.MethodGet); answer.StatusCode != 200 || !answer.Close {
		t.Errorf("answer %d, the last: %v", answer.StatusCode, answer.Close)
	}
	<-closed
}
