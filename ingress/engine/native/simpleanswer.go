package native

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// isSimpleAnswer reports whether an answer's length is known, and nothing has to be added
// to its headers or after its body.
func isSimpleAnswer(r *http.Request, a *http.Response) bool {
	switch {
	case len(a.Trailer) > 0:
		return false
	case !hasBody(a.StatusCode):
		return true
	case a.ContentLength < 0 || len(a.Header["Content-Length"]) != 1:
		return false
	case r.Method == http.MethodHead || a.ContentLength == 0:
		return true
	}
	kind := a.Header["Content-Type"]
	return len(kind) > 0 && !strings.HasPrefix(kind[0], "text/event-stream")
}

// hasBody reports whether answers of a status have one (RFC 9110, 6.4.1).
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// answer hands an endpoint's answer to the client, and reports whether the connection
// can bring another request.
func (c *simple) answer(r *http.Request, a *http.Response) (goesOn bool) {
	w := writers.Get().(*bufio.Writer)
	w.Reset(c.conn)
	defer func() {
		w.Reset(nil)
		writers.Put(w)
	}()
	c.x.counter.status = a.StatusCode
	if !hasBody(a.StatusCode) { // RFC 9110, 8.6
		delete(a.Header, "Content-Length")
		if a.StatusCode == http.StatusNotModified {
			delete(a.Header, "Content-Type")
		}
	}
	writeHead(w, a.StatusCode, a.Header)
	err := error(nil)
	if hasBody(a.StatusCode) && r.Method != http.MethodHead {
		c.x.counter.bytes, err = copyAnswer(w, a)
	}
	_ = a.Body.Close()                                                            // the endpoint's connection may take another request now
	return errors.Join(err, w.Flush()) == nil && len(a.Header["Connection"]) == 0 // only last sets it
}

// copyAnswer copies a body whose length is known.
func copyAnswer(w *bufio.Writer, a *http.Response) (n int64, err error) {
	buffer := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buffer)
	for n < a.ContentLength {
		got, err := a.Body.Read(*buffer)
		n += int64(got)
		if _, failed := w.Write((*buffer)[:got]); failed != nil {
			return n, failed
		}
		switch {
		case n == a.ContentLength:
		case errors.Is(err, io.EOF):
			return n, io.ErrUnexpectedEOF
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

// writeHead writes an answer's first line and its headers. Errors show with the flush.
func writeHead(w *bufio.Writer, status int, header http.Header) {
	_, _ = w.WriteString("HTTP/1.1 ")
	_, _ = w.Write(strconv.AppendInt(w.AvailableBuffer(), int64(status), 10))
	_ = w.WriteByte(' ')
	if text := http.StatusText(status); text != "" {
		_, _ = w.WriteString(text)
	} else {
		_, _ = w.WriteString("status code ")
		_, _ = w.Write(strconv.AppendInt(w.AvailableBuffer(), int64(status), 10))
	}
	_, _ = w.WriteString("\r\n")
	for name, values := range header {
		if httpguts.ValidHeaderFieldName(name) {
			for _, v := range values {
				writeHeader(w, name, v)
			}
		}
	}
	if status >= http.StatusOK && len(header["Date"]) == 0 {
		_, _ = w.WriteString("Date: ")
		_, _ = w.Write(time.Now().UTC().AppendFormat(w.AvailableBuffer(), http.TimeFormat))
		_, _ = w.WriteString("\r\n")
	}
	_, _ = w.WriteString("\r\n")
}

// noLines has a value be no more than one line.
var noLines = strings.NewReplacer("\n", " ", "\r", " ")

func writeHeader(w *bufio.Writer, name, value string) {
	_, _ = w.WriteString(name)
	_, _ = w.WriteString(": ")
	if strings.IndexByte(value, '\r') >= 0 || strings.IndexByte(value, '\n') >= 0 {
		value = noLines.Replace(value)
	}
	_, _ = w.WriteString(value)
	_, _ = w.WriteString("\r\n")
}

// early hands on answers before the answer; see inform.
type early struct {
	conn   net.Conn
	header http.Header
}

// Header is that of the next one.
func (e *early) Header() http.Header {
	if e.header == nil {
		e.header = http.Header{}
	}
	return e.header
}

// WriteHeader sends one. An error shows with the answer.
func (e *early) WriteHeader(status int) {
	if status < 100 {
		panic(http.ErrAbortHandler) // as net/http does
	}
	delete(e.header, "Content-Length")
	delete(e.header, "Transfer-Encoding")
	w := bufio.NewWriter(e.conn)
	writeHead(w, status, e.header)
	_ = w.Flush()
}

// Write is never called: there is no body.
func (e *early) Write(b []byte) (int, error) { return len(b), nil }
