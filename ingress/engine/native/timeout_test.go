package native

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestReadTimeout: it is the longest time in which nothing comes, and not that of the
// whole answer.
func TestReadTimeout(t *testing.T) {
	const timeout = 400 * time.Millisecond
	action := &model.Action{Backends: to("web"), ReadTimeout: timeout}
	ask := served(t, action, map[string]http.HandlerFunc{"web": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" {
			<-r.Context().Done()
			return
		}
		for range 8 {
			_, _ = io.WriteString(w, "drop ") // an error shows at the other end
			_ = http.NewResponseController(w).Flush()
			time.Sleep(timeout / 4) // slow, but never for as long as the time-out
		}
	}})
	response := ask("/drips", nil)
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != strings.Repeat("drop ", 8) {
		t.Errorf("an answer that drips is cut: %q, %v", body, err)
	}
	if response := ask("/never", nil); response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("an endpoint that never answers: answer %d", response.StatusCode)
	}
}

// TestUnread: a client that reads nothing loses its connection.
func TestUnread(t *testing.T) {
	defer writeTimeout.Store(writeTimeout.Swap(int64(300 * time.Millisecond)))
	ended := make(chan struct{}, 1)
	ask := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for {
			if _, err := w.Write(part); err != nil {
				ended <- struct{}{}
				return
			}
		}
	})
	e := withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": poolAt("web", listening(t, ask))})
	c, err := net.Dial("tcp", e.Sockets()["s"].String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the connection is still open")
	}
}

// TestUnreadStream: a client of HTTP/2 that opens no window for a stream loses that.
func TestUnreadStream(t *testing.T) {
	defer writeTimeout.Store(writeTimeout.Swap(int64(300 * time.Millisecond)))
	ended := make(chan struct{})
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				close(ended)
				return
			}
		}
	})
	e := withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": poolAt("web", listening(t, answer))})
	c, err := net.Dial("tcp", e.Sockets()["s"].String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h"}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // into memory
	}
	if err := errors.Join(f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }() // the connection is read
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the stream is still open")
	}
}

// listening serves a handler.
func listening(t *testing.T, handler http.Handler) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr()
}

// TestSilent: an endpoint of HTTP/2 that falls silent without a word is noticed, and the
// next request has a connection of its own.
func TestSilent(t *testing.T) {
	before := lossTimeout
	t.Cleanup(func() { lossTimeout = before }) // after the engine has ended
	lossTimeout = 400 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	connections := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections <- c
			go func() { // it says that it is there, and reads
				_ = http2.NewFramer(c, nil).WriteSettings()
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	pool := poolAt("web", l.Addr())
	pool.Protocol = model.H2C
	e := withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": pool})
	for i := range 2 {
		response, err := http.Get("http://" + e.Sockets()["s"].String() + "/") //nolint:noctx // it ends with the endpoint
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // it says nothing
		if response.StatusCode != http.StatusBadGateway {
			t.Errorf("answer %d", response.StatusCode)
		}
		select {
		case c := <-connections:
			defer func() { _ = c.Close() }()
		default:
			t.Errorf("request %d has the dead connection", i)
		}
	}
}

// TestStatus: an answer whose status is none is no answer, and leaves nothing open.
func TestStatus(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ended := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				r := bufio.NewReader(c)
				for {
					q, err := http.ReadRequest(r)
					if err != nil {
						ended <- struct{}{}
						return
					}
					_, _ = io.Copy(io.Discard, q.Body)
					_, _ = fmt.Fprint(c, "HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	e := withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": poolAt("web", l.Addr())})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		q, err := http.NewRequestWithContext(t.Context(), method, "http://"+e.Sockets()["s"].String()+"/", strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		if method == http.MethodGet {
			q.Body, q.ContentLength = nil, 0
		}
		response, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		_ = response.Body.Close() // it says nothing
		if response.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: answer %d", method, response.StatusCode)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s: the connection is still open", method)
		}
	}
}
