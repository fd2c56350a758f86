package native

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// A connection that is closed while its client still sends is reset, and with that the
// answer is lost if the client hasn't read it yet. One that brought a body is closed in
// two steps: nothing more is sent, and what comes is thrown away until the
// client has ended, too.
const (
	lingerFor  = 30 * time.Second
	lingerIdle = 5 * time.Second // without a byte
)

// lingering is a client's connection, or the one below its TLS.
type lingering struct {
	net.Conn
	unread atomic.Bool // the client may have sent what nobody reads
	closed atomic.Bool
	// clients are those among whom the connection's is, by its certificate.
	clients atomic.Pointer[model.ClientValidation]

	bounded atomic.Bool  // somebody else has set a deadline for writing
	writing atomic.Int64 // until when something may be written, in Unix nanoseconds; see Write
}

// A client that reads nothing for that long loses its connection. The deadline is put off
// when a tenth of it is gone: to set one costs more than to look at the time.
var writeTimeout = func() *atomic.Int64 {
	d := &atomic.Int64{} // tests shorten it
	d.Store(int64(time.Minute))
	return d
}()

// Write bounds how long the client may read nothing.
func (l *lingering) Write(b []byte) (int, error) {
	now, most := time.Now(), time.Duration(writeTimeout.Load())
	if until := l.writing.Load(); until-now.UnixNano() < int64(most/10*9) && !l.bounded.Load() {
		end := now.Add(most)
		l.writing.Store(end.UnixNano())
		if err := l.Conn.SetWriteDeadline(end); err != nil {
			return 0, err
		}
	}
	return l.Conn.Write(b)
}

// progress bounds how long a client may take nothing of a stream of HTTP/2 or HTTP/3,
// whose connection may well be read. Short answers need none: they fit into the window
// that a stream begins with.
type progress struct {
	stream  bool
	control *http.ResponseController
	written int
	until   time.Time
}

const firstWindow = 32 << 10 // at most that of clients (RFC 9113, 6.9.2)

// next is called before n more bytes are written.
func (p *progress) next(n int) {
	if p.written += n; !p.stream || p.written <= firstWindow {
		return
	}
	if now, most := time.Now(), time.Duration(writeTimeout.Load()); p.until.Sub(now) < most/10*9 {
		p.until = now.Add(most)
		_ = p.control.SetWriteDeadline(p.until) // a stream without one waits as long as it takes
	}
}

// SetWriteDeadline is another's, which counts in place of Write's own until it is lifted.
func (l *lingering) SetWriteDeadline(t time.Time) error {
	if l.bounded.Store(!t.IsZero()); t.IsZero() {
		return nil // Write has its own
	}
	l.writing.Store(0)
	return l.Conn.SetWriteDeadline(t)
}

// SetDeadline is one for reading, too.
func (l *lingering) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// expectBody notes whether a request has one, and bounds how long net/http may wait for
// what nobody else reads. In HTTP/2, a stream ends without its connection.
func expectBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.ProtoMajor > 1 {
		return
	}
	if !isGRPC(r) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // of a connection that has one
	}
	switch c := connectionOf(r.Context()).(type) {
	case *plainConn:
		c.unread.Store(true)
	case *tls.Conn:
		if l, ok := c.NetConn().(*lingering); ok {
			l.unread.Store(true)
		}
	}
}

// CloseWrite says that nothing more comes. net/http does so where it doesn't read all.
func (l *lingering) CloseWrite() error {
	l.unread.Store(true)
	return closeWrite(l.Conn)
}

// Close closes the connection, in the background if its client may still send.
func (l *lingering) Close() error {
	if l.closed.Swap(true) || !l.unread.Load() || closeWrite(l.Conn) != nil {
		return l.Conn.Close()
	}
	go l.drain()
	return nil
}

// drain reads until the client has ended.
func (l *lingering) drain() {
	defer func() { _ = l.Conn.Close() }() // nobody waits for it
	end := time.Now().Add(lingerFor)
	buffer := make([]byte, 4<<10)
	for {
		now := time.Now()
		if !now.Before(end) || l.Conn.SetReadDeadline(now.Add(lingerIdle)) != nil {
			return
		}
		if _, err := l.Conn.Read(buffer); err != nil {
			return
		}
	}
}
