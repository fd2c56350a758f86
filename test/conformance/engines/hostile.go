package engines

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/ingress/model"
)

// testForwarded: what a client says of where it comes from is not passed on.
func testForwarded(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	for _, protocols := range []func(*http.Protocols){http1, h2c} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
			q.Header.Set(name, "lie")
		}
		q.Header.Add("X-Forwarded-For", "203.0.113.66")
		response, _, err := ask(client(r.address(), protocols), q)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"X-Forwarded-For": "[127.0.0.1]", "X-Forwarded-Host": "[h]", "X-Forwarded-Proto": "[http]", "Forwarded": "[]"}
		for name, value := range want {
			if got := fmt.Sprint(response.Header["Asked-"+name]); got != value {
				t.Errorf("%s reaches the endpoint as %s, want %s", name, got, value)
			}
		}
	}
}

// testLimits: headers and bodies that are too long are refused, also where the
// length isn't said before.
func testLimits(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	limited := to("p")
	limited.MaxBody = 1000
	r.apply(table([]*model.Rule{below("/limited", limited), below("/", to("p"))}, pool("p", e)))
	head := "GET / HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"
	if status := r.first(t, head); !isTooLarge(status) {
		t.Errorf("a header of a megabyte: answer %d", status)
	}
	many := "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n"
	if status := r.first(t, many); !isTooLarge(status) {
		t.Errorf("100,000 headers: answer %d", status)
	}
	if n := e.asked.Load(); n != 0 {
		t.Errorf("the endpoint was asked %d times", n)
	}
	for _, protocols := range []func(*http.Protocols){http1, h2c} {
		for length, want := range map[int]int{1000: http.StatusOK, 1001: http.StatusRequestEntityTooLarge} {
			for _, body := range []io.Reader{strings.NewReader(strings.Repeat("x", length)), io.MultiReader(strings.NewReader(strings.Repeat("x", length)))} {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/limited", body)
				if err != nil {
					t.Fatal(err)
				}
				response, _, err := ask(client(r.address(), protocols), q)
				if err != nil || response.StatusCode != want {
					t.Errorf("a body of %d bytes: answer %v, %v; want %d", length, response, err, want)
				}
			}
		}
	}
}

// isTooLarge reports whether headers were refused: as RFC 6585 has it, as it had to be
// before, or by a reset of the connection before the answer was read.
func isTooLarge(status int) bool {
	return status == http.StatusRequestHeaderFieldsTooLarge || status == http.StatusBadRequest || status == 0
}

// testSlowClients: clients that never end what they begin don't keep others from
// being answered.
func testSlowClients(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	for i := range min(5000, int(files.Cur/4)) { // both ends are this process's
		c, err := net.Dial("tcp", r.address().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		begun := []string{"", "GET / HT", "GET / HTTP/1.1\r\nHost: h\r\nA: ", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx", http2.ClientPreface[:9]}[i%5]
		if _, err := io.WriteString(c, begun); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if response, _ := r.get(client(r.address(), http1), "http://h/"); response.StatusCode != http.StatusOK {
			t.Errorf("answer %d", response.StatusCode)
		}
	}
}

// testRapidReset: a client that opens streams only to reset them (CVE-2023-44487)
// is bounded, and others are answered.
func testRapidReset(t *testing.T, r *rig) {
	release := make(chan struct{})
	e := r.endpoint("e", func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/wait" {
			select {
			case <-q.Context().Done():
			case <-release:
			}
		}
	})
	t.Cleanup(func() { close(release) })
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	f, c := r.framed(t)
	defer func() { _ = c.Close() }()
	go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(c)) }() // so that the gateway can write
	headers := block(t, []field{{":method", "GET"}, {":scheme", "http"}, {":path", "/wait"}, {":authority", "h"}})
	for id := uint32(1); id < 10_000; id += 2 {
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers, EndStream: true, EndHeaders: true})
		if err == nil {
			err = f.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if err != nil {
			break // the gateway has had enough
		}
	}
	other := client(r.address(), h2c)
	other.Timeout = time.Minute
	if response, _ := r.get(other, "http://h/"); response.StatusCode != http.StatusOK {
		t.Errorf("another client: answer %d", response.StatusCode)
	}
}
