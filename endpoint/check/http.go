package check

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxHeader bounds the status line and the header fields of an answer.
	maxHeader = 16 << 10
	// maxBody is how much of an answer is searched for the expected text.
	maxBody = 64 << 10
)

// boundedReader reads an answer, and no more of it than it was allowed to: an
// endpoint is whoever its Service's author says, and may send without end.
type boundedReader struct {
	*bufio.Reader
	allowed io.LimitedReader
}

// readers are used again: one for each question under way.
var readers = sync.Pool{New: func() any {
	r := &boundedReader{}
	r.Reader = bufio.NewReaderSize(&r.allowed, 1024)
	return r
}}

// readerOf is a reader of an answer's header; allow lets it read more.
func readerOf(c io.Reader) *boundedReader {
	r, _ := readers.Get().(*boundedReader)
	r.allowed = io.LimitedReader{R: c, N: maxHeader}
	r.Reset(&r.allowed)
	return r
}

// allow lets n further bytes be read.
func (r *boundedReader) allow(n int64) { r.allowed.N += n }

// exhausted reports whether the answer is longer than was allowed.
func (r *boundedReader) exhausted() bool { return r.allowed.N <= 0 }

// askHTTP asks once and reads no more of the answer than it has to. Redirects
// are answers like others: they are never followed. No credentials are sent.
func askHTTP(t Target, c net.Conn) error {
	if _, err := io.WriteString(c, "GET "+t.Spec.Path+" HTTP/1.1\r\nHost: "+t.host()+
		"\r\nUser-Agent: fairway-health-check\r\nAccept: */*\r\nConnection: close\r\n\r\n"); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	reader := readerOf(c)
	defer readers.Put(reader)
	defer finish(c, reader)
	if t.Spec.Text != "" {
		return readWhole(t.Spec, reader)
	}
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	status, err := statusOf(line)
	if err != nil {
		return err
	}
	return t.Spec.expectStatus(status)
}

// finish lets the server end the connection, as it was asked to: one whose
// answer is cut off logs an error with each check. Nothing is cut off, and
// nobody is waited for, where the whole answer is there already.
func finish(c net.Conn, reader *boundedReader) {
	rest, err := reader.Peek(reader.Buffered())
	if err == nil && isWhole(rest) {
		return
	}
	if c.SetReadDeadline(time.Now().Add(Shortest)) == nil {
		reader.allow(maxBody)
		_, _ = io.CopyN(io.Discard, reader, maxBody) // the answer is known already
	}
}

// isWhole reports whether what follows a status line is an answer's whole rest:
// header fields, and as much of a body as Content-Length says. It may say no to
// one that is; the connection then ends a little later.
func isWhole(rest []byte) bool {
	header, body, ended := bytes.Cut(rest, []byte("\r\n\r\n"))
	if !ended {
		return false
	}
	for field := range bytes.SplitSeq(header, []byte("\r\n")) {
		name, value, _ := bytes.Cut(field, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			length, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			return err == nil && len(body) == length
		}
	}
	return false
}

// statusOf reads a status line (RFC 9112 section 4).
func statusOf(line []byte) (int, error) {
	version, rest, _ := bytes.Cut(line, []byte(" "))
	if code, _, _ := bytes.Cut(bytes.TrimRight(rest, "\r\n"), []byte(" ")); bytes.HasPrefix(version, []byte("HTTP/1.")) && len(code) == 3 {
		if status, err := strconv.Atoi(string(code)); err == nil {
			return status, nil
		}
	}
	return 0, unexpectedError("the answer is not HTTP")
}

func readWhole(s *Spec, reader *boundedReader) error {
	answer, err := http.ReadResponse(reader.Reader, nil)
	if err != nil && reader.exhausted() {
		return unexpectedError("the header of the answer is longer than " + strconv.Itoa(maxHeader>>10) + " KiB")
	}
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // the connection ends anyway
	if err := s.expectStatus(answer.StatusCode); err != nil {
		return err
	}
	reader.allow(maxBody)
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil && !reader.exhausted() { // what has come until then is searched
		return fmt.Errorf("read answer: %w", err)
	}
	if !strings.Contains(string(body), s.Text) {
		return unexpectedError("the expected text is not in the answer")
	}
	return nil
}

// expectStatus compares a status code with the good ones.
func (s *Spec) expectStatus(status int) error {
	if len(s.Status) == 0 && status >= 200 && status < 400 {
		return nil
	}
	for _, r := range s.Status {
		if status >= r.From && status <= r.To {
			return nil
		}
	}
	return unexpectedError("status " + strconv.Itoa(status))
}
