package native

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// isSimpleAnswer reports whether an answer announces no trailers and says what its body
// is. net/http's server finds that out of others.
func isSimpleAnswer(r *http.Request, a *http.Response) bool {
	switch {
	case len(a.Trailer) > 0:
		return false
	case !hasBody(a.StatusCode):
		return true
	case a.ContentLength < 0 && r.Method == http.MethodHead || a.ContentLength >= 0 && len(a.Header["Content-Length"]) != 1:
		return false
	}
	return r.Method == http.MethodHead || a.ContentLength == 0 || len(a.Header["Content-Type"]) > 0
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
	inParts := hasBody(a.StatusCode) && a.ContentLength < 0
	if inParts {
		a.Header["Transfer-Encoding"] = chunked
	}
	writeHead(w, a.StatusCode, a.Header)
	err := error(nil)
	switch {
	case inParts:
		c.x.counter.bytes, err = copyParts(w, a)
	case hasBody(a.StatusCode) && r.Method != http.MethodHead:
		c.x.counter.bytes, err = copyWhole(w, a)
	}
	_ = a.Body.Close()                                                            // the endpoint's connection may take another request now
	return errors.Join(err, w.Flush()) == nil && len(a.Header["Connection"]) == 0 // only last sets it
}

// copyWhole copies a body whose length is known. One of events goes out part by part as
// it comes.
func copyWhole(w *bufio.Writer, a *http.Response) (n int64, err error) {
	atOnce := strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream")
	n, err = copyTo(w, a.Body, w, atOnce)
	if err == nil && n < a.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

var chunked = []string{"chunked"}

// copyParts copies a body whose length nobody knows, part by part as it comes.
func copyParts(w *bufio.Writer, a *http.Response) (n int64, err error) {
	parts := httputil.NewChunkedWriter(w)
	if n, err = copyTo(parts, a.Body, w, true); err != nil {
		return n, err
	}
	err = parts.Close()
	for name, values := range a.Trailer { // which the endpoint hasn't announced
		if httpguts.ValidTrailerHeader(name) {
			writeHeader(w, name, values)
		}
	}
	_, _ = w.WriteString("\r\n")
	return n, err
}

// copyTo copies a body to its end; at once if what has been copied doesn't wait for
// more, nor the headers for it.
func copyTo(to io.Writer, body io.Reader, w *bufio.Writer, atOnce bool) (n int64, err error) {
	buffer := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buffer)
	for {
		if atOnce {
			if err := w.Flush(); err != nil {
				return n, err
			}
		}
		got, err := body.Read(*buffer)
		n += int64(got)
		if got > 0 {
			if _, err := to.Write((*buffer)[:got]); err != nil {
				return n, err
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
	}
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
		writeHeader(w, name, values)
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

// writeHeader writes a header as net/http does, and none whose name is no name.
func writeHeader(w *bufio.Writer, name string, values []string) {
	if !httpguts.ValidHeaderFieldName(name) {
		return
	}
	for _, v := range values {
		_, _ = w.WriteString(name)
		_, _ = w.WriteString(": ")
		if strings.IndexByte(v, '\r') >= 0 || strings.IndexByte(v, '\n') >= 0 {
			v = noLines.Replace(v)
		}
		_, _ = w.WriteString(textproto.TrimString(v))
		_, _ = w.WriteString("\r\n")
	}
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
