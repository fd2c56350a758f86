package check

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// TestEndlessAnswers: of an answer that never ends, only so much is read.
func TestEndlessAnswers(t *testing.T) {
	for name, of := range map[string]struct{ begin, again, reason string }{
		"header": {"HTTP/1.1 200 OK\r\n", "X-Filler: " + strings.Repeat("x", 1000) + "\r\n", "longer than 16 KiB"},
		"line":   {"HTTP/1.1 200 OK\r\nX-Filler: ", strings.Repeat("x", 1000), "longer than 16 KiB"},
		"body":   {"HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 1000), "expected text"},
		"chunks": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "3e8;" + strings.Repeat("e", 3000) + "\r\n" + strings.Repeat("x", 1000) + "\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, sent := listen(t, "127.0.0.1:0"), &atomic.Int64{}
			go serveEndless(l, of.begin, of.again, sent)
			expect(t, ask(t, l.Addr().String(), "http:/", "interval=30s", "timeout=30s", "text=none such"), Wrong, of.reason)
			// What the kernel buffers of a connection comes on top of what is read.
			if n := sent.Load(); n > 16<<20 {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

// serveEndless answers with begin, and then with again for as long as somebody reads.
func serveEndless(l net.Listener, begin, again string, sent *atomic.Int64) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, err = io.WriteString(c, begin)
		for err == nil {
			var n int
			n, err = io.WriteString(c, again)
			sent.Add(int64(n))
		}
		_ = c.Close()
	}
}

// TestBoundedReader: what is read of an endpoint is what was allowed, to the byte
// buffered, and an answer of the allowed length is one.
func TestBoundedReader(t *testing.T) {
	source := &countingReader{}
	r := readerOf(source)
	if n, _ := io.Copy(io.Discard, r); n != maxHeader || !r.exhausted() {
		t.Errorf("%d bytes, exhausted %v", n, r.exhausted())
	}
	r.allow(10)
	if n, _ := io.Copy(io.Discard, r); n != 10 || source.read != maxHeader+10 {
		t.Errorf("%d bytes more, %d of the source", n, source.read)
	}
}

type countingReader struct{ read int }

func (c *countingReader) Read(p []byte) (int, error) {
	c.read += len(p)
	return len(p), nil
}

// TestTimeoutIsCapped: nobody holds a place for long.
func TestTimeoutIsCapped(t *testing.T) {
	s, err := Parse("tcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range Settings() {
		switch setting.Name {
		case "interval":
			err = setting.Set(&s, "1h")
		case "timeout":
			if setting.Set(&s, "61s") == nil {
				t.Error("a timeout of more than a minute is taken")
			}
			err = setting.Set(&s, "1m")
		}
		if err != nil {
			t.Error(err)
		}
	}
}
