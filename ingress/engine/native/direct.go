package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxIdle          = 256 // connections to an endpoint
	maxAnswerHeaders = 1 << 20
	maxInformational = 8 // answers before the answer
	mostSkipped      = 32
)

var (
	errHeadersTooLong = errors.New("the headers of the answer are too long")
	errClientGone     = errors.New("the client has gone")
)

// direct is the client side for requests of HTTP/1.1, but for those that have a time limit
// of a try, which are most. http.Transport gives each connection two
// goroutines and hands the request from one to the other; here the request's own
// goroutine writes and reads, and looks before whether the endpoint has ended the
// connection: a request that is not to be sent twice would be lost. All parsing is
// net/http's.
type direct struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	idle  map[netip.AddrPort][]*link // the latest last
	sweep *time.Timer                // nil while nothing is idle
	busy  []*link                    // of requests that end only with their clients
	look  *time.Timer                // for clients that have gone; nil if there never was a request
	looks bool                       // look is set
}

// link is a connection to an endpoint.
type link struct {
	conn   net.Conn
	reader *bufio.Reader
	limit  int64 // what may still be read
	since  time.Time

	// How a request ends early.
	ctx    context.Context //nolint:containedctx // of the request that it is busy with
	at     int             // in direct.busy
	cut    bool            // its client has gone
	client *plainConn      // looked at in place of ctx; nil if ctx tells
	seen   uint            // how often cutGone came by
	stop   func() bool     // nil if it is in direct.busy

	raw   syscall.RawConn // nil if the connection has none
	peek  func(fd uintptr)
	quiet bool // as peek has found it
}

func newLink(c net.Conn) *link {
	l := &link{conn: c}
	l.reader = bufio.NewReaderSize(l, 4<<10)
	if sc, ok := c.(syscall.Conn); ok {
		l.raw, _ = sc.SyscallConn() // without it, the connection is used once
	}
	l.peek = func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		l.quiet = errors.Is(err, syscall.EAGAIN)
	}
	return l
}

// Read is the connection's, as far as the limit goes.
func (l *link) Read(p []byte) (int, error) {
	if l.limit <= 0 {
		return 0, errHeadersTooLong
	}
	n, err := l.conn.Read(p[:min(int64(len(p)), l.limit)])
	l.limit -= int64(n)
	return n, err
}

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}

// roundTrip sends a request to an endpoint. A connection that was idle and turns
// out to be closed is replaced.
func (d *direct) roundTrip(r *http.Request, ep netip.AddrPort, busy *atomic.Int64, x *exchange, repeatable bool) (*http.Response, error) {
	for {
		l := d.take(ep)
		reused := l != nil
		if !reused {
			c, err := d.dial(r.Context(), "tcp", ep.String())
			if err != nil {
				return nil, err
			}
			l = newLink(c)
		}
		response, begun, err := d.exchange(l, r, ep, busy, x)
		if err == nil {
			return response, nil
		}
		if l.cut {
			return nil, errClientGone
		}
		if ctxErr := r.Context().Err(); ctxErr != nil {
			return nil, ctxErr
		}
		if !reused || begun || !repeatable {
			return nil, err
		}
	}
}

// exchange reports whether an answer has begun. The connection is idle again once
// the answer's body is read and closed.
func (d *direct) exchange(l *link, r *http.Request, ep netip.AddrPort, busy *atomic.Int64, x *exchange) (_ *http.Response, begun bool, err error) {
	d.begin(l, r.Context(), x.plain)
	answered := false
	defer func() { // also where something panics
		if !answered {
			x.awaited.answered(0)
			d.end(l)
			_ = l.conn.Close() // it is of no use any more
		}
	}()
	sent, err := l.send(r, x)
	if err != nil {
		return nil, false, err
	}
	l.limit = maxAnswerHeaders
	if _, err := l.reader.Peek(1); err != nil {
		return nil, false, sent.reason(err)
	}
	response, err := final(l.reader, r, x)
	if err != nil {
		return nil, true, sent.reason(err)
	}
	l.limit = math.MaxInt64
	b := &directBody{sent: sent, ReadCloser: response.Body, direct: d, link: l, ep: ep, busy: busy, keep: !response.Close, whole: response.Body == http.NoBody}
	response.Body, answered = b, true
	return response, true, nil
}

// sending is a request whose body is sent while its answer is awaited: an endpoint may
// answer before it has read all. It has its error once; nil is sent already.
type sending chan error

// send sends a request, or begins to.
func (l *link) send(r *http.Request, x *exchange) (sending, error) {
	w := writers.Get().(*bufio.Writer)
	w.Reset(l.conn)
	put := func() {
		w.Reset(nil)
		writers.Put(w)
	}
	if r.Body == nil {
		defer put()
		return nil, errors.Join(writeRequest(w, r), w.Flush())
	}
	s := make(sending, 1)
	go func() {
		defer put()
		err := errors.Join(r.Write(w), w.Flush())
		s <- err
		if err != nil && x.body.failed.Load() {
			l.end() // the endpoint waits for what never comes
		}
	}()
	return s, nil
}

// reason is why there is no answer: what reading it found, or sending before that.
func (s sending) reason(err error) error {
	select {
	case sent := <-s:
		if sent != nil {
			return sent
		}
	default:
	}
	return err
}

// isDone reports whether all was sent.
func (s sending) isDone() bool {
	if s == nil {
		return true
	}
	select {
	case err := <-s:
		return err == nil
	default:
		return false
	}
}

// writeRequest does what [http.Request.Write] does for a request without a body, at less
// than half of the cost: it neither sorts the headers nor looks for a body.
func writeRequest(w *bufio.Writer, r *http.Request) error {
	target := r.URL.RequestURI()
	if !isPlain(r.Host) || !isPlain(target) || r.Close || r.Body != nil {
		return r.Write(w)
	}
	_, _ = w.WriteString(r.Method)
	_ = w.WriteByte(' ')
	_, _ = w.WriteString(target)
	_, _ = w.WriteString(" HTTP/1.1\r\nHost: ")
	_, _ = w.WriteString(r.Host)
	_, _ = w.WriteString("\r\n")
	for name, values := range r.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		}
		writeHeader(w, name, values)
	}
	_, err := w.WriteString("\r\n")
	return err
}

// isPlain reports whether a text is there and goes into a request as it is.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '%' && text[0] != '/' { // zones of addresses don't go out
			return false
		}
	}
	return text != ""
}

// begin has reading and writing end when the request does. A context of a request
// without a timeout ends when its client goes away: whether it has is looked at from
// time to time, since to be told of it costs more than all else here.
func (d *direct) begin(l *link, ctx context.Context, client *plainConn) {
	if _, timed := ctx.Deadline(); timed {
		l.stop = context.AfterFunc(ctx, l.end)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.ctx, l.at, l.client, l.seen = ctx, len(d.busy), client, 0
	d.busy = append(d.busy, l)
	switch {
	case d.looks:
		return
	case d.look == nil:
		d.look = time.AfterFunc(lookInterval, d.cutGone)
	default:
		d.look.Reset(lookInterval)
	}
	d.looks = true
}

func (l *link) end() { _ = l.conn.SetDeadline(time.Unix(1, 0)) } // what is under way fails

// end follows begin, and reports whether the connection can be used again.
func (d *direct) end(l *link) bool {
	if stop := l.stop; stop != nil {
		l.stop = nil
		return stop()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.busy) - 1
	d.busy[l.at], d.busy[last].at = d.busy[last], l.at
	d.busy[last] = nil
	d.busy = d.busy[:last]
	l.ctx, l.client = nil, nil
	return !l.cut
}

// cutGone ends requests of clients that have gone.
func (d *direct) cutGone() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.busy {
		if !l.cut && l.isAlone() {
			l.cut = true
			l.end()
		}
	}
	if d.looks = len(d.busy) > 0; d.looks {
		d.look.Reset(lookInterval)
	}
}

// isAlone reports whether the request's client has gone. A client's connection is
// looked at ever less often, up to mostSkipped times of coming by.
func (l *link) isAlone() bool {
	l.seen++
	if l.client != nil && (l.seen&(l.seen-1) == 0 || l.seen%mostSkipped == 0) && l.client.hasGone() {
		return true
	}
	return l.ctx.Err() != nil
}

// final reads the answer, past those that only announce it.
func final(b *bufio.Reader, r *http.Request, x *exchange) (*http.Response, error) {
	for range maxInformational {
		response, err := http.ReadResponse(b, r)
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		x.awaited.answered(response.StatusCode)
		switch {
		case response.StatusCode < 100:
			return nil, badStatus(response)
		case response.StatusCode == http.StatusSwitchingProtocols:
			return nil, errUnasked
		case response.StatusCode >= 200:
			return response, nil
		}
		x.inform(response.StatusCode, response.Header)
	}
	return nil, errors.New("the endpoint announces its answer too often")
}

// directBody gives the connection back once it is read to its end.
type directBody struct {
	io.ReadCloser
	direct *direct
	link   *link
	ep     netip.AddrPort
	busy   *atomic.Int64 // one less once it is closed
	keep   bool          // the endpoint leaves the connection open
	whole  bool
	once   sync.Once
	sent   sending
}

func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.whole = true
	}
	return n, err
}

func (b *directBody) Close() error {
	b.once.Do(func() {
		b.busy.Add(-1)
		if b.direct.end(b.link) && b.sent.isDone() && b.keep && b.whole && b.link.reader.Buffered() == 0 && b.direct.give(b.ep, b.link) {
			return
		}
		_ = b.link.conn.Close() // what is left of the answer is lost
	})
	return nil
}

// take returns an idle connection to an endpoint that is still open; nil if there
// is none.
func (d *direct) take(ep netip.AddrPort) *link {
	for {
		d.mu.Lock()
		list := d.idle[ep]
		if len(list) == 0 {
			d.mu.Unlock()
			return nil
		}
		l := list[len(list)-1]
		list[len(list)-1] = nil
		if list = list[:len(list)-1]; len(list) == 0 {
			delete(d.idle, ep)
		} else {
			d.idle[ep] = list
		}
		d.mu.Unlock()
		if l.isQuiet() {
			return l
		}
		_ = l.conn.Close() // the other end has closed it
	}
}

// give keeps a connection for the next request, unless there are enough.
func (d *direct) give(ep netip.AddrPort, l *link) bool {
	l.since = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.idle == nil {
		d.idle = map[netip.AddrPort][]*link{}
	}
	if len(d.idle[ep]) >= maxIdle {
		return false
	}
	d.idle[ep] = append(d.idle[ep], l)
	if d.sweep == nil {
		d.sweep = time.AfterFunc(upstreamIdle, d.clean)
	}
	return true
}

// clean closes what has been idle for long.
func (d *direct) clean() {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := time.Now().Add(-upstreamIdle)
	for ep, list := range d.idle {
		n := 0
		for n < len(list) && list[n].since.Before(old) {
			_ = list[n].conn.Close() // nobody uses it
			n++
		}
		if list = append([]*link(nil), list[n:]...); len(list) == 0 {
			delete(d.idle, ep)
		} else {
			d.idle[ep] = list
		}
	}
	if len(d.idle) == 0 {
		d.sweep = nil
	} else {
		d.sweep.Reset(upstreamIdle / 4)
	}
}

func (d *direct) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, list := range d.idle {
		for _, l := range list {
			_ = l.conn.Close() // nobody uses it
		}
	}
	d.idle = nil
}

// isQuiet reports whether a connection is open, and nothing has come that nobody
// asked for.
func (l *link) isQuiet() bool {
	return l.raw != nil && l.raw.Control(l.peek) == nil && l.quiet
}
