package native

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestTrailersOnly: an answer of gRPC that is nothing but headers is one to the client,
// too: one block of headers that ends the stream.
func TestTrailersOnly(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "5")
		w.WriteHeader(http.StatusOK)
	})}
	go func() { _ = s.Serve(l) }() // until it is closed
	defer func() { _ = s.Close() }()
	pool := poolAt("web", l.Addr())
	pool.Protocol = model.H2C
	e := withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": pool})
	c, err := net.Dial("tcp", e.Sockets()["s"].String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/a.B/C"}, {":authority", "h"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	first := block.String()
	for i := range 30 {
		id := uint32(2*i + 1)
		if i > 0 { // the table of the encoder has them all now
			block.Reset()
			for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/a.B/C"}, {":authority", "h"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
				_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // into memory
			}
			first = block.String()
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(first), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteData(id, true, []byte("\x00\x00\x00\x00\x00")); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if h, ok := frame.(*http2.MetaHeadersFrame); ok && h.StreamID == id {
				answered = true
				if !h.StreamEnded() {
					t.Fatalf("request %d: the headers don't end the stream", i)
				}
			}
		}
	}
}

// TestContinue: the endpoint says whether it wants a body, and not the gateway.
func TestContinue(t *testing.T) {
	endpoint := func(answer string) net.Addr {
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
					r := bufio.NewReader(c)
					q, err := http.ReadRequest(r)
					if err != nil || q.Header.Get("Expect") != "100-continue" {
						return
					}
					_, _ = io.WriteString(c, answer) // an error shows at the other end
					if strings.HasPrefix(answer, "HTTP/1.1 100") {
						body, _ := io.ReadAll(q.Body) // its length tells
						_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\n%d", len(body))
					}
				}()
			}
		}()
		return l.Addr()
	}
	for name, test := range map[string]struct {
		answer string
		want   []int
	}{
		"wanted":  {"HTTP/1.1 100 Continue\r\n\r\n", []int{100, 200}},
		"refused": {"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", []int{403}},
	} {
		t.Run(name, func(t *testing.T) {
			e := withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": poolAt("web", endpoint(test.answer))})
			c, err := net.Dial("tcp", e.Sockets()["s"].String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			for _, want := range test.want {
				response, err := http.ReadResponse(r, nil)
				if err != nil || response.StatusCode != want {
					t.Fatalf("answer %v, %v; want %d", response, err, want)
				}
				if want == http.StatusContinue {
					_, _ = io.WriteString(c, "text") // an error shows with the answer
				}
			}
		})
	}
}

// TestClosedBeforePost: a connection that the endpoint has closed takes no request that
// is not to be sent twice.
func TestClosedBeforePost(t *testing.T) {
	closed := make(chan struct{}, 1)
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
			q, err := http.ReadRequest(bufio.NewReader(c))
			if err == nil {
				_, _ = io.Copy(io.Discard, q.Body)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok") // it doesn't say that it ends
			}
			_ = c.Close()
			closed <- struct{}{}
		}
	}()
	e := withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": poolAt("web", l.Addr())})
	for i := range 50 {
		response, err := http.Post("http://"+e.Sockets()["s"].String()+"/", "text/plain", strings.NewReader("text")) //nolint:noctx // it is answered
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close() // all was read
		if response.StatusCode != http.StatusOK {
			t.Fatalf("request %d: answer %d", i, response.StatusCode)
		}
		<-closed
	}
}
