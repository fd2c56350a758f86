package engines

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairway-net/fairway/ingress/model"
)

// field is one of a header block.
type field struct{ name, value string }

// malformed are requests of HTTP/2 that must not be passed on (RFC 9113, 8.1.1,
// 8.2, 8.3): written as HTTP/1.1 they could be two, or another one.
var malformed = map[string][]field{
	"a name in capitals":        get(field{"Upper", "x"}),
	"a name with a space":       get(field{"a b", "x"}),
	"a name with a colon":       get(field{"a:b", "x"}),
	"a name with CRLF":          get(field{"a\r\nb", "x"}),
	"an empty name":             get(field{"", "x"}),
	"a value with CRLF":         get(field{"a", "x\r\nhidden: y"}),
	"a value with LF":           get(field{"a", "x\nhidden: y"}),
	"a value with NUL":          get(field{"a", "x\x00"}),
	"connection":                get(field{"connection", "close"}),
	"keep-alive":                get(field{"keep-alive", "timeout=5"}),
	"proxy-connection":          get(field{"proxy-connection", "close"}),
	"upgrade":                   get(field{"upgrade", "websocket"}),
	"transfer-encoding":         get(field{"transfer-encoding", "chunked"}),
	"te with another value":     get(field{"te", "chunked"}),
	"a length with no body":     get(field{"content-length", "5"}),
	"lengths that differ":       get(field{"content-length", "0"}, field{"content-length", "5"}),
	"a pseudo-header late":      {{":method", "GET"}, {":scheme", "http"}, {"a", "b"}, {":path", "/"}, {":authority", "h"}},
	"an unknown pseudo-header":  append([]field{{":hidden", "x"}}, get()...),
	"an answer's pseudo-header": append([]field{{":status", "200"}}, get()...),
	"two paths":                 {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":path", "/hidden"}, {":authority", "h"}},
	"two methods":               {{":method", "GET"}, {":method", "POST"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h"}},
	"no method":                 {{":scheme", "http"}, {":path", "/"}, {":authority", "h"}},
	"no path":                   {{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}},
	"no scheme":                 {{":method", "GET"}, {":path", "/"}, {":authority", "h"}},
	"an empty path":             {{":method", "GET"}, {":scheme", "http"}, {":path", ""}, {":authority", "h"}},
	"a path without a slash":    {{":method", "GET"}, {":scheme", "http"}, {":path", "hidden"}, {":authority", "h"}},
	"a path with CRLF":          {{":method", "GET"}, {":scheme", "http"}, {":path", "/ HTTP/1.1\r\nHost: h\r\n\r\nGET /hidden"}, {":authority", "h"}},
	"a path with a space":       {{":method", "GET"}, {":scheme", "http"}, {":path", "/ HTTP/1.1"}, {":authority", "h"}},
	"a method with CRLF":        {{":method", "GET /hidden HTTP/1.1\r\nA: b"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h"}},
	"an authority with CRLF":    {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h\r\nA: b"}},
	"an authority with a path":  {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h/hidden"}},
	"no authority and no host":  {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}},
}

func get(more ...field) []field {
	return append([]field{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h"}}, more...)
}

// testFrames: nothing of it reaches an endpoint; what is well formed does.
func testFrames(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	if status := r.frames(t, get()); status != "200" || e.asked.Load() != 1 {
		t.Fatalf("a good request: answer %q, asked %d times", status, e.asked.Load())
	}
	for name, fields := range malformed {
		before := e.asked.Load()
		if status := r.frames(t, fields); status == "200" || e.asked.Load() != before {
			t.Errorf("%s: answer %q, asked %d times", name, status, e.asked.Load()-before)
		}
	}
}

// framed opens a connection for HTTP/2 without TLS.
func (r *rig) framed(t *testing.T) (*http2.Framer, net.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", r.address().String())
	if err != nil {
		t.Fatal(err)
	}
	return framer(t, c), c
}

// framer begins HTTP/2 on a connection.
func framer(t *testing.T, c net.Conn) *http2.Framer {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

func block(t *testing.T, fields []field) []byte {
	t.Helper()
	var b bytes.Buffer
	encoder := hpack.NewEncoder(&b)
	for _, one := range fields {
		if err := encoder.WriteField(hpack.HeaderField{Name: one.name, Value: one.value}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// frames sends a header block as a request of its own; "" if it is reset or the
// connection ends.
func (r *rig) frames(t *testing.T, fields []field) string {
	t.Helper()
	f, c := r.framed(t)
	defer func() { _ = c.Close() }()
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, fields), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	return statusOf(f)
}

// statusOf reads until an answer; "" if the stream or the connection ends.
func statusOf(f *http2.Framer) string {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return ""
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck() // a failure shows with the next frame
			}
		}
	}
}
