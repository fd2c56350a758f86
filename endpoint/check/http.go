package check

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxBody is how much of an answer is searched for the expected text.
const maxBody = 64 << 10

// readers are used again: one for each question under way.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1024) }}

// askHTTP asks once and reads no more of the answer than it has to. Redirects
// are answers like others: they are never followed. No credentials are sent.
func askHTTP(t Target, c net.Conn) error {
	if _, err := io.WriteString(c, "GET "+t.Spec.Path+" HTTP/1.1\r\nHost: "+t.host()+
		"\r\nUser-Agent: fairway-health-check\r\nAccept: */*\r\nConnection: close\r\n\r\n"); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	reader, _ := readers.Get().(*bufio.Reader)
	reader.Reset(c)
	defer readers.Put(reader)
	defer finish(c, reader)
	if t.Spec.Text != "" {
		return readWhole(t.Spec, reader)
	}
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	status, err := statusOf(string(line))
	if err != nil {
		return err
	}
	return t.Spec.expectStatus(status)
}

// finish lets the server end the connection, as it was asked to: one whose
// answer is cut off logs an error with each check.
func finish(c net.Conn, reader *bufio.Reader) {
	if c.SetReadDeadline(time.Now().Add(Shortest)) == nil {
		_, _ = io.CopyN(io.Discard, reader, maxBody) // the answer is known already
	}
}

// statusOf reads a status line (RFC 9112 section 4).
func statusOf(line string) (int, error) {
	version, rest, _ := strings.Cut(line, " ")
	if code, _, _ := strings.Cut(strings.TrimRight(rest, "\r\n"), " "); strings.HasPrefix(version, "HTTP/1.") && len(code) == 3 {
		if status, err := strconv.Atoi(code); err == nil {
			return status, nil
		}
	}
	return 0, unexpectedError("the answer is not HTTP")
}

func readWhole(s *Spec, reader *bufio.Reader) error {
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // the connection ends anyway
	if err := s.expectStatus(answer.StatusCode); err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
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
