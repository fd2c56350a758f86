package native

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestClientGoes: an endpoint learns that nobody waits for its answer any more,
// whether the rule has a timeout or not, and the next client is answered.
func TestClientGoes(t *testing.T) {
	for name, action := range map[string]*model.Action{"no timeout": {}, "timeout": {Timeout: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			asked, ended := make(chan struct{}, 1), make(chan error, 1)
			at := frontOf(t, action, func(c net.Conn, r *bufio.Reader) {
				for q := nextRequest(r); q != nil; q = nextRequest(r) {
					if q.URL.Path == "/never" {
						asked <- struct{}{}
						_, err := r.ReadByte()
						ended <- err
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			for range 3 { // the first has its connection used again
				if status := get(t, "http://"+at.String()+"/"); status != http.StatusOK {
					t.Fatalf("answer %d", status)
				}
				c, err := net.Dial("tcp", at.String())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(c, "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				<-asked
				_ = c.Close() // as a client that goes away
				select {
				case err := <-ended:
					if err == nil {
						t.Error("the endpoint was sent more than the request")
					}
				case <-time.After(30 * time.Second):
					t.Fatal("the endpoint still answers a client that has gone")
				}
			}
		})
	}
}

// TestOriginOfClient: whether scripts may read the answer is decided by the origin
// that the client named, though the endpoint doesn't hear of it.
func TestOriginOfClient(t *testing.T) {
	action := &model.Action{CORS: &model.CORS{Origins: []string{"https://a.example"}}, Request: model.HeaderEdit{Remove: []string{"Origin"}}}
	heard := make(chan string, 1)
	at := frontOf(t, action, func(c net.Conn, r *bufio.Reader) {
		q := nextRequest(r)
		heard <- q.Header.Get("Origin")
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Origin", "https://a.example")
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // only headers count
	if origin := <-heard; origin != "" || response.Header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("the endpoint heard of origin %q; answer %v", origin, response.Header)
	}
}

func get(t *testing.T, url string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close() // all was read
	return response.StatusCode
}

// TestWriteRequest: endpoints get what net/http would have sent.
func TestWriteRequest(t *testing.T) {
	for _, head := range []string{
		"GET /a%2Fb%20c?d=%20e HTTP/1.1\r\nHost: h:8080\r\nUser-Agent: x\r\nAccept: a\r\nAccept: b\r\nEmpty:\r\n\r\n",
		"HEAD / HTTP/1.1\r\nHost: H.example\r\nX:  padded \r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]:80\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: b\u00fccher.example\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET http://other.example/x HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		var parsed [2]*http.Request
		for i, write := range []func(*bufio.Writer, *http.Request) error{writeRequest, func(w *bufio.Writer, r *http.Request) error { return r.Write(w) }} {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
			if err != nil {
				t.Fatal(err)
			}
			r.Body, r.Header["Two\r\nLines"], r.Header["Line"] = nil, []string{"x"}, []string{"a\r\nb: c"}
			if len(r.Header["User-Agent"]) == 0 {
				r.Header["User-Agent"] = nil
			}
			var sent bytes.Buffer
			w := bufio.NewWriter(&sent)
			if err := errors.Join(write(w, r), w.Flush()); err != nil {
				t.Fatalf("%q: %v", head, err)
			}
			if parsed[i], err = http.ReadRequest(bufio.NewReader(&sent)); err != nil {
				t.Fatalf("%q: %q: %v", head, sent.String(), err)
			}
		}
		got, want := parsed[0], parsed[1]
		if got.Method != want.Method || got.RequestURI != want.RequestURI || got.Host != want.Host || !reflect.DeepEqual(got.Header, want.Header) {
			t.Errorf("%q: sent %s %s %s %v, want %s %s %s %v", head, got.Method, got.RequestURI, got.Host, got.Header, want.Method, want.RequestURI, want.Host, want.Header)
		}
	}
}
