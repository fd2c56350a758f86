package engines

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// hidden is a request that must never be taken for one, unless the gateway
// itself answers it.
const hidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"

// smuggled are requests whose end two servers may see at different places (RFC
// 9112, 11.2), and others that are no HTTP. A gateway refuses them, or passes
// on what has only one meaning.
func smuggled() map[string]string {
	post := "POST / HTTP/1.1\r\nHost: h\r\n"
	chunked := post + "Transfer-Encoding: chunked\r\n\r\n"
	cases := map[string]string{
		"both lengths, length first":  post + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(hidden), hidden),
		"both lengths, chunks first":  post + fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n%s", 5+len(hidden), hidden),
		"both lengths, short":         post + fmt.Sprintf("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden),
		"two lengths that differ":     post + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n%s", len(hidden), hidden),
		"two lengths that are equal":  post + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
		"lengths in a list":           post + fmt.Sprintf("Content-Length: 0, %d\r\n\r\n%s", len(hidden), hidden),
		"equal lengths in a list":     post + "Content-Length: 4, 4\r\n\r\nbody",
		"two lengths, case differs":   post + fmt.Sprintf("content-length: 0\r\nCONTENT-LENGTH: %d\r\n\r\n%s", len(hidden), hidden),
		"chunk size of hex with sign": chunked + "+0\r\n\r\n" + hidden,
		"chunk size with minus":       chunked + "-1\r\n\r\n" + hidden,
		"chunk size with 0x":          chunked + "0x0\r\n\r\n" + hidden,
		"chunk size with underscore":  chunked + "1_0\r\n0123456789abcdef\r\n0\r\n\r\n",
		"chunk size too large":        chunked + "FFFFFFFFFFFFFFFFF\r\n" + hidden,
		"chunk size that wraps":       chunked + "10000000000000000\r\n" + hidden,
		"chunk size missing":          chunked + "\r\n\r\n" + hidden,
		"chunk size with spaces":      chunked + "  0\r\n\r\n" + hidden,
		"chunk longer than it says":   chunked + "1\r\nab\r\n0\r\n\r\n" + hidden,
		"chunk ended by LF":           chunked + "4\nbody\n0\n\n" + hidden,
		"chunk ended by CR":           chunked + "4\rbody\r0\r\r" + hidden,
		"chunk extension":             chunked + "4;a=b\r\nbody\r\n0\r\n\r\n",
		"chunk extension with LF":     chunked + "4;a\nbody\r\n0\r\n\r\n" + hidden,
		"chunk extension with CR":     chunked + "4;\rx\r\nbody\r\n0\r\n\r\n" + hidden,
		"trailer with a length":       chunked + "0\r\nContent-Length: 100\r\n\r\n" + hidden,
		"trailer with a coding":       chunked + "0\r\nTransfer-Encoding: chunked\r\n\r\n" + hidden,
		"trailer without a colon":     chunked + "0\r\nnothing\r\n\r\n" + hidden,
		"CR in the middle":            "GET / HTTP/1.1\r\nHost: h\r\nA: b\rX: y\r\n\r\n",
		"NUL in a value":              "GET / HTTP/1.1\r\nHost: h\r\nA: b\x00c\r\n\r\n",
		"a folded header":             post + "A: b\r\n Content-Length: 100\r\nContent-Length: 4\r\n\r\nbody",
		"a folded first header":       "POST / HTTP/1.1\r\n Host: h\r\nContent-Length: 4\r\n\r\nbody",
		"a folded coding":             post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden,
		"LF for CRLF":                 "POST / HTTP/1.1\nHost: h\nContent-Length: 4\n\nbody",
		"LF after a header":           post + "A: b\nContent-Length: 4\r\n\r\nbody",
		"no colon":                    "GET / HTTP/1.1\r\nHost: h\r\nnothing\r\n\r\n",
		"no name":                     "GET / HTTP/1.1\r\nHost: h\r\n: value\r\n\r\n",
		"no host":                     "GET / HTTP/1.1\r\nA: b\r\n\r\n",
		"two hosts":                   "GET / HTTP/1.1\r\nHost: h\r\nHost: other\r\n\r\n",
		"a host with a path":          "GET / HTTP/1.1\r\nHost: h/hidden\r\n\r\n",
		"a host with a space":         "GET / HTTP/1.1\r\nHost: h other\r\n\r\n",
		"a host with a comma":         "GET / HTTP/1.1\r\nHost: h, other\r\n\r\n",
		"two spaces":                  "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a tab":                       "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n",
		"a space in the path":         "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a control in the path":       "GET /a\x01b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a method with a space":       " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a method that is none":       "G(T / HTTP/1.1\r\nHost: h\r\n\r\n",
		"no version":                  "GET /\r\nHost: h\r\n\r\n",
		"version 1.2":                 "GET / HTTP/1.2\r\nHost: h\r\n\r\n",
		"version 9":                   "GET / HTTP/9.9\r\nHost: h\r\n\r\n",
		"version in small letters":    "GET / http/1.1\r\nHost: h\r\n\r\n",
		"chunks in version 1.0":       "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"an absolute form":            "GET http://h/ HTTP/1.1\r\nHost: other\r\n\r\n",
		"a body of GET":               fmt.Sprintf("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(hidden), hidden),
		"pipelined":                   "GET / HTTP/1.1\r\nHost: h\r\n\r\n" + hidden,
		"a length hop by hop":         post + fmt.Sprintf("Connection: Content-Length\r\nContent-Length: %d\r\n\r\n%s", len(hidden), hidden),
		"a host hop by hop":           "GET / HTTP/1.1\r\nHost: h\r\nConnection: Host, X-Forwarded-For\r\n\r\n",
		"an upgrade to h2c":           post + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 0\r\n\r\n" + hidden,
		"expect nonsense":             post + "Expect: nonsense\r\nContent-Length: 4\r\n\r\nbody",
	}
	for _, coding := range []string{
		"xchunked", "chunked, identity", "identity", "chunked, chunked", "gzip, chunked", "chunked;q=1", "\"chunked\"", "chunked\x0b", "\x0bchunked", "CHUNKED", "chun\x00ked", ", chunked", "",
	} {
		cases[fmt.Sprintf("coding %q", coding)] = post + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: %s\r\n\r\n0\r\n\r\n%s", 5+len(hidden), coding, hidden)
	}
	for _, line := range []string{"Transfer-Encoding : chunked", " Transfer-Encoding: chunked", "\tTransfer-Encoding: chunked", "Transfer-Encoding\x00: chunked", "Transfer_Encoding: chunked", "X: y\rTransfer-Encoding: chunked"} {
		cases[fmt.Sprintf("line %q", line)] = post + fmt.Sprintf("Content-Length: %d\r\n%s\r\n\r\n0\r\n\r\n%s", 5+len(hidden), line, hidden)
	}
	for _, length := range []string{"+4", "-4", "4a", "0x4", " ", "4 4", "4\x0b", "99999999999999999999", "4.0", "١"} {
		cases[fmt.Sprintf("length %q", length)] = post + "Content-Length: " + length + "\r\n\r\nbody" + hidden
	}
	return cases
}

// clear are the cases that have one meaning once they are written anew: chunks
// count, not the length beside them (RFC 9112, 6.3), lines may end with LF (2.2),
// folded ones are one line. All others are refused.
var clear = map[string]bool{
	"LF after a header": true, "LF for CRLF": true, "a body of GET": true, "a folded coding": true, "a folded header": true,
	"a host hop by hop": true, "a length hop by hop": true, "an absolute form": true, "an upgrade to h2c": true,
	"both lengths, chunks first": true, "both lengths, length first": true, "both lengths, short": true, "chunk extension": true,
	"chunks in version 1.0": true, `coding "CHUNKED"`: true, `line "Transfer_Encoding: chunked"`: true, "pipelined": true,
	"trailer with a coding": true, "trailer with a length": true, "two lengths that are equal": true, "version 1.2": true,
}

// testSmuggling: what can be taken in two ways is refused, or passed on in one:
// each request that an endpoint gets has one length at most, and lines are lines.
func testSmuggling(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	wire := &recorder{to: e.addr().String()}
	r.apply(table([]*model.Rule{below("/", to("p"))}, &model.Pool{Name: "p", Endpoints: []model.Endpoint{{Addr: wire.listen(t), Weight: 1}}}))
	cases := smuggled()
	if len(cases) < 80 {
		t.Fatalf("only %d cases", len(cases))
	}
	for name, text := range cases {
		switch status := r.first(t, text); {
		case clear[name] && r.otherwise[name] != "" && status == http.StatusBadRequest:
		case clear[name] && status != http.StatusOK:
			t.Errorf("%s: answer %d, want 200", name, status)
		case !clear[name] && r.otherwise[name] != "" && status == http.StatusOK: // what reaches the endpoint is looked at below
		case !clear[name] && (status < 400 || status == http.StatusBadGateway):
			t.Errorf("%s: answer %d, want a refusal", name, status)
		}
	}
	wire.check(t)
}

// first sends bytes and returns the status of the first answer; 0 if there is none.
func (r *rig) first(t *testing.T, text string) int {
	t.Helper()
	c, err := net.Dial("tcp", r.address().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, text) // it may be refused before its end
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// recorder is in front of an endpoint and keeps what it is sent.
type recorder struct {
	to string

	mu   sync.Mutex
	sent []*bytes.Buffer // by connection
}

func (w *recorder) listen(t *testing.T) netip.AddrPort {
	t.Helper()
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
			go w.relay(c)
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func (w *recorder) relay(c net.Conn) {
	defer func() { _ = c.Close() }()
	out, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	kept := &bytes.Buffer{}
	w.mu.Lock()
	w.sent = append(w.sent, kept)
	w.mu.Unlock()
	go func() { _, _ = io.Copy(c, out); _ = c.Close() }()
	buffer := make([]byte, 4<<10)
	for {
		n, err := c.Read(buffer)
		w.mu.Lock()
		kept.Write(buffer[:n])
		w.mu.Unlock()
		if _, failed := out.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// check reads what was sent the strict way: each request has one length at most,
// and lines are lines.
func (w *recorder) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sent := range w.sent {
		for rest := sent.String(); rest != ""; {
			head, _, found := strings.Cut(rest, "\r\n\r\n")
			if !found {
				break // cut off with the connection
			}
			lengths := 0
			for i, line := range strings.Split(head, "\r\n") {
				name, _, colon := strings.Cut(line, ":")
				if strings.ContainsAny(line, "\r\n\x00") || i > 0 && (!colon || name == "" || strings.ContainsAny(name, " \t")) {
					t.Errorf("the endpoint gets the line %q", line)
				}
				if strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Transfer-Encoding") {
					lengths++
				}
			}
			if lengths > 1 {
				t.Errorf("the endpoint gets two lengths:\n%s", head)
			}
			all := bufio.NewReader(strings.NewReader(rest))
			request, err := http.ReadRequest(all)
			if err != nil {
				t.Errorf("the endpoint gets\n%s\n%v", head, err)
				break
			}
			_, _ = io.Copy(io.Discard, request.Body) // it may be cut off
			left, _ := io.ReadAll(all)
			rest = string(left)
		}
	}
}
