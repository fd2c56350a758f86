package engines

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// testEarly: an answer may come before its request's body has ended. Nothing of that body
// is taken for another request, and a connection that isn't said to end serves on.
func testEarly(t *testing.T, r *rig) {
	early := r.endpoint("early", func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // or net/http waits for the body
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	})
	r.apply(table([]*model.Rule{below("/early", to("early")), below("/empty", to("empty")), below("/", to("p"))}, pool("early", early), pool("empty"), pool("p", r.endpoint("p", nil))))
	for _, path := range []string{"/early", "/empty"} {
		for name, body := range map[string]string{
			"chunks that are none": "Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
			"a chunk's end":        "Transfer-Encoding: chunked\r\n\r\n2\r\nabX\r\n",
		} {
			if got := r.statuses(t, "POST "+path+" HTTP/1.1\r\nHost: h\r\n"+body+"GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"); len(got) > 1 {
				t.Errorf("%s, %s: answers %v, want one", path, name, got)
			}
		}
		r.goesOn(t, path)
	}
}

// statuses are those of all answers to what is sent.
func (r *rig) statuses(t *testing.T, text string) (list []int) {
	t.Helper()
	c, b := r.connected(t)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	for {
		response, err := http.ReadResponse(b, nil)
		if err != nil {
			return list
		}
		list = append(list, response.StatusCode)
		_, _ = io.Copy(io.Discard, response.Body) // it may be cut off
		_ = response.Body.Close()
		_ = c.SetReadDeadline(time.Now().Add(unheard)) // the connection has one
	}
}

// unheard is how long an answer may take that should not come.
const unheard = 300 * time.Millisecond

func (r *rig) connected(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", r.address().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// goesOn sends bodies whose end follows their answers.
func (r *rig) goesOn(t *testing.T, path string) {
	t.Helper()
	c, b := r.connected(t)
	for range 20 {
		if _, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf"); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		response, err := http.ReadResponse(b, nil)
		if err != nil {
			t.Fatalf("%s: a connection that was not said to end has ended: %v", path, err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_ = response.Body.Close()
		if response.Close {
			c, b = r.connected(t)
			continue
		}
		if _, err := io.WriteString(c, "half"); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	c, b = r.connected(t)
	if _, err := io.WriteString(c, strings.Repeat("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", 3)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		response, err := http.ReadResponse(b, nil)
		if err != nil {
			t.Fatalf("bodies that have ended: %v", err)
		}
		if got, err := io.ReadAll(response.Body); err != nil || response.Close || !strings.HasSuffix(string(got), "body") {
			t.Errorf("bodies that have ended: answer %q, ends the connection: %v, %v", got, response.Close, err)
		}
		_ = response.Body.Close()
	}
}
