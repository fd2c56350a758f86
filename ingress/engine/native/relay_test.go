package native

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairway-net/fairway/ingress/model"
)

// front is an engine before an endpoint that answers every connection as told.
func front(t *testing.T, answer func(net.Conn, *bufio.Reader)) netip.AddrPort {
	t.Helper()
	return frontOf(t, &model.Action{}, answer)
}

func frontOf(t *testing.T, action *model.Action, answer func(net.Conn, *bufio.Reader)) netip.AddrPort {
	t.Helper()
	action.Backends = []model.Backend{{Pool: "p", Weight: 1}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				answer(c, bufio.NewReader(c))
			}()
		}
	}()
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(t.Context()) })
	listener := &model.Listener{Name: "l"}
	listener.SetHosts([]*model.Host{{Rules: []*model.Rule{{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: action}}}})
	table := &model.Table{
		Sockets: []*model.Socket{{Name: "s", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{listener}}},
		Pools:   map[string]*model.Pool{"p": {Name: "p", Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(l.Addr().String()), Weight: 1}}}},
	}
	if err := e.Apply(table); err != nil {
		t.Fatal(err)
	}
	return e.Sockets()["s"]
}

func nextRequest(r *bufio.Reader) *http.Request {
	q, err := http.ReadRequest(r)
	if err != nil {
		return nil
	}
	return q
}

// TestAnswers: answers of all kinds come through whole, and connections that can
// be used again are.
func TestAnswers(t *testing.T) {
	connections := make(chan struct{}, 100)
	at := front(t, func(c net.Conn, r *bufio.Reader) {
		connections <- struct{}{}
		for q := nextRequest(r); q != nil; q = nextRequest(r) {
			switch q.URL.Path {
			case "/early":
				_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			case "/trailer":
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: End\r\n\r\n2\r\nok\r\n0\r\nEnd: done\r\n\r\n")
			case "/hop":
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: keep-alive, Secret\r\nSecret: x\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok")
			case "/none":
				_, _ = io.WriteString(c, "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n")
			case "/head":
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			default:
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nAsked: %s\r\n\r\n%s", len(q.URL.RequestURI()), q.Header, q.URL.RequestURI())
			}
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: time.Minute}
	for _, test := range []struct {
		method, path, body string
		check              func(*http.Response) bool
	}{
		{"GET", "/a%2Fb?c=d", "/a%2Fb?c=d", func(r *http.Response) bool { return !strings.Contains(r.Header.Get("Asked"), "Hop") }},
		{"GET", "/early", "ok", func(r *http.Response) bool { return r.StatusCode == 200 && r.Header.Get("Link") == "" }},
		{"GET", "/trailer", "ok", func(r *http.Response) bool { return r.Trailer.Get("End") == "done" }},
		{"GET", "/hop", "ok", func(r *http.Response) bool { return r.Header.Get("Secret") == "" && r.Header.Get("Keep-Alive") == "" }},
		{"GET", "/none", "", func(r *http.Response) bool { return r.StatusCode == 304 && r.Header.Get("Etag") == `"x"` }},
		{"HEAD", "/head", "", func(r *http.Response) bool { return r.ContentLength == 1000 }},
		{"OPTIONS", "/x", "/x", func(r *http.Response) bool { return r.StatusCode == 200 }},
	} {
		early := ""
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error { early = fmt.Sprint(code, h.Get("Link")); return nil }}
		q, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), test.method, "http://"+at.String()+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Connection", "Hop")
		q.Header.Set("Hop", "x")
		response, err := client.Do(q)
		if err != nil {
			t.Fatalf("%s %s: %v", test.method, test.path, err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // all was read
		if err != nil || string(body) != test.body || !test.check(response) {
			t.Errorf("%s %s: answer %d %v %q %v, %v", test.method, test.path, response.StatusCode, response.Header, body, response.Trailer, err)
		}
		if (early == "103</a>") != (test.path == "/early") {
			t.Errorf("%s: announced %q", test.path, early)
		}
	}
	if n := len(connections); n != 1 {
		t.Errorf("%d connections, where one could be used again", n)
	}
}

// TestEvents: parts of an answer go out as they come.
func TestEvents(t *testing.T) {
	for _, head := range []string{"Transfer-Encoding: chunked", "Content-Type: text/event-stream\r\nContent-Length: 4"} {
		release := make(chan struct{})
		at := front(t, func(c net.Conn, r *bufio.Reader) {
			if nextRequest(r) == nil {
				return
			}
			first, second := "a\n", "b\n"
			if strings.Contains(head, "chunked") {
				first, second = "2\r\na\n\r\n", "2\r\nb\n\r\n0\r\n\r\n"
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"\r\n\r\n"+first)
			<-release
			_, _ = io.WriteString(c, second)
		})
		response, err := (&http.Client{Timeout: time.Minute}).Get("http://" + at.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(response.Body)
		if line, err := lines.ReadString('\n'); err != nil || line != "a\n" {
			t.Fatalf("%q, %v", line, err)
		}
		close(release)
		if line, err := lines.ReadString('\n'); err != nil || line != "b\n" {
			t.Fatalf("%q, %v", line, err)
		}
		_ = response.Body.Close() // all was read
	}
}

// TestNotWhole: an answer that ends too early doesn't look whole, and what an
// endpoint sends that nobody asked for is nobody's answer.
func TestNotWhole(t *testing.T) {
	at := front(t, func(c net.Conn, r *bufio.Reader) {
		for q := nextRequest(r); q != nil; q = nextRequest(r) {
			if q.URL.Path == "/short" {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			time.Sleep(20 * time.Millisecond) // the answer was read before the rest comes
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 6\r\n\r\nforged")
		}
	})
	client := &http.Client{Timeout: time.Minute}
	response, err := client.Get("http://" + at.String() + "/short")
	if err == nil {
		_, err = io.ReadAll(response.Body)
		_ = response.Body.Close() // it is over
	}
	if err == nil {
		t.Error("an answer of which a part is missing looks whole")
	}
	for range 5 {
		response, err := client.Get("http://" + at.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close() // all was read
		if response.StatusCode != 200 || string(body) != "ok" {
			t.Errorf("answer %d %q", response.StatusCode, body)
		}
		time.Sleep(60 * time.Millisecond) // what is forged has come
	}
}

// TestLongHeaders: an endpoint can't fill the memory with headers.
func TestLongHeaders(t *testing.T) {
	at := front(t, func(c net.Conn, r *bufio.Reader) {
		if nextRequest(r) == nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for range 10_000 {
			if _, err := io.WriteString(c, "A: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
				return
			}
		}
	})
	response, err := (&http.Client{Timeout: time.Minute}).Get("http://" + at.String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // nothing is read
	if response.StatusCode != http.StatusBadGateway {
		t.Errorf("answer %d", response.StatusCode)
	}
}

// TestBodyThatStops: a client that stops in the middle of a body is given up.
func TestBodyThatStops(t *testing.T) {
	if bodyTimeout > 2*time.Minute {
		t.Errorf("a body may stop for %s", bodyTimeout)
	}
	b := newBody(deadlines{}, &http.Request{Body: io.NopCloser(strings.NewReader("x")), Header: http.Header{}}, 0)
	if b.control == nil {
		t.Error("nothing bounds how long a body takes")
	}
	b.end()
	b.pace(time.Second) // once the request is over, its connection isn't touched
	stream := newBody(deadlines{}, &http.Request{Body: io.NopCloser(strings.NewReader("x")), Header: http.Header{"Content-Type": {"application/grpc"}}}, 0)
	if stream.control != nil {
		t.Error("a stream of gRPC may not be silent")
	}
}

type deadlines struct{ http.ResponseWriter }

// TestContinuationFlood: a block of headers that never ends (CVE-2023-45288) ends
// the connection, not the gateway's memory.
func TestContinuationFlood(t *testing.T) {
	at := front(t, func(c net.Conn, r *bufio.Reader) {
		if nextRequest(r) != nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }() // so that the gateway can write
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, nil)
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	fragment := bytes.Repeat([]byte{0x00, 0x01, 'a', 0x01, 'b'}, 3000) // a: b, and not to be remembered
	sent := 0
	for ; sent < 10_000; sent++ { // 150 MB
		if err := f.WriteContinuation(1, false, fragment); err != nil {
			break
		}
	}
	if sent == 10_000 {
		t.Errorf("%d MB of headers were read", sent*len(fragment)>>20)
	}
	if response, err := (&http.Client{Timeout: time.Minute}).Get("http://" + at.String() + "/"); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("another client: answer %v, %v", response, err)
	} else {
		_ = response.Body.Close() // nothing is read
	}
}
