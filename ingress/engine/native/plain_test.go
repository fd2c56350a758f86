package native

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

// pair is a connection, and its other end.
func pair(t *testing.T) (*plainConn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	other, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close(); _ = c.Close() })
	return newPlainConn(c), other
}

// TestDeadlines: the last deadline counts, whatever Conn was told before.
func TestDeadlines(t *testing.T) {
	const soon = 30 * time.Millisecond
	long := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		deadlines []time.Time
		ends      bool
	}{
		"passed":         {[]time.Time{time.Unix(1, 0)}, true},
		"passed, none":   {[]time.Time{time.Unix(1, 0), {}}, false},
		"passed, later":  {[]time.Time{time.Unix(1, 0), long}, false},
		"soon":           {[]time.Time{time.Now().Add(soon)}, true},
		"soon, none":     {[]time.Time{time.Now().Add(soon), {}}, false},
		"soon, later":    {[]time.Time{time.Now().Add(soon), long}, false},
		"later, soon":    {[]time.Time{long, time.Now().Add(soon)}, true},
		"none, soon":     {[]time.Time{{}, time.Now().Add(soon)}, true},
		"later, passed":  {[]time.Time{long, {}, time.Unix(1, 0)}, true},
		"passed, passed": {[]time.Time{time.Unix(1, 0), {}, time.Unix(1, 0)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, other := pair(t)
			for _, d := range test.deadlines {
				if err := c.SetReadDeadline(d); err != nil {
					t.Fatal(err)
				}
			}
			if !test.ends {
				time.AfterFunc(4*soon, func() { _, _ = other.Write([]byte("x")) }) // past what was said first
			}
			n, err := c.Read(make([]byte, 4))
			if test.ends && !isTimeout(err) || !test.ends && (n != 1 || err != nil) {
				t.Errorf("read %d, %v", n, err)
			}
		})
	}
}

// TestDeadlineEndsReading: one that has passed ends what reads already.
func TestDeadlineEndsReading(t *testing.T) {
	c, _ := pair(t)
	if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	time.Sleep(20 * time.Millisecond) // the read begins; nothing shows that it has
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !isTimeout(err) {
		t.Error(err)
	}
}

// TestHasGone: a client has gone once it has closed its connection, or broken it
// off; not while it is silent, or has asked for more.
func TestHasGone(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(net.Conn)
		gone bool
	}{
		"silent":     {func(net.Conn) {}, false},
		"asks":       {func(c net.Conn) { _, _ = c.Write([]byte("GET")) }, false},
		"closed":     {func(c net.Conn) { _ = c.Close() }, true},
		"broken off": {func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }, true},
	} {
		c, other := pair(t)
		test.do(other)
		for range wait.Tries(time.Second) {
			if c.hasGone() == test.gone {
				break
			}
		}
		if got := c.hasGone(); got != test.gone {
			t.Errorf("%s: gone %v", name, got)
		}
	}
}

// TestRequestsAtOnce: requests that a client sends without waiting for answers are
// answered, and so is one that comes while another is handled.
func TestRequestsAtOnce(t *testing.T) {
	meanwhile := make(chan struct{})
	at := front(t, func(c net.Conn, r *bufio.Reader) {
		for q := nextRequest(r); q != nil; q = nextRequest(r) {
			if q.URL.Path == "/slow" {
				<-meanwhile
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const request = "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"
	if _, err := io.WriteString(c, request+request); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // the client is looked at meanwhile
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	close(meanwhile)
	for r, i := bufio.NewReader(c), 0; i < 3; i++ {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "ok" {
			t.Errorf("answer %d: %q, %v", i, body, err)
		}
	}
}

// TestNobodyReadsBeside: while a request without a body is handled, net/http's
// goroutine is sent away, and doesn't ask again.
func TestNobodyReadsBeside(t *testing.T) {
	c, other := pair(t)
	if _, err := other.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	c.handled.Store(true)
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	c.handled.Store(false)
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d, %v, once it is over", n, err)
	}
}
