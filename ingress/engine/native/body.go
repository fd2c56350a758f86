package native

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/ingress/policy"
)

// maxReplay is how much of a request's body is kept for another try.
const maxReplay = 64 << 10

// bodyTimeout is how long a client may take for the next part of a body. gRPC's
// streams may be silent for as long as they like.
const bodyTimeout = time.Minute

// body is a request's, which several tries may read from the start as long as
// what was read of it is short.
type body struct {
	mu      sync.Mutex
	source  io.ReadCloser
	kept    []byte // all that was read, unless dropped
	read    int    // from source
	dropped bool
	failed  atomic.Bool // what the client sends can't be read
	ended   atomic.Bool // all was read
	cause   error       // why, once failed
	tees    []*tee      // get what is read of source

	paceMu  sync.Mutex
	control *http.ResponseController // of the client's connection; nil once nobody may ask it
}

func newBody(w http.ResponseWriter, r *http.Request, limit int64) *body {
	source := r.Body
	if source == nil {
		source = http.NoBody
	}
	if limit > 0 {
		source = http.MaxBytesReader(w, source, limit)
	}
	b := &body{source: source}
	if source != http.NoBody && !isGRPC(r) {
		b.control = http.NewResponseController(w)
	}
	return b
}

// pace bounds how long the next part may take; 0 is for ever. Once the request is
// answered, its connection is somebody else's.
func (b *body) pace(d time.Duration) {
	b.paceMu.Lock()
	defer b.paceMu.Unlock()
	if b.control == nil {
		return
	}
	deadline := time.Time{}
	if d > 0 {
		deadline = time.Now().Add(d)
	}
	_ = b.control.SetReadDeadline(deadline) // a connection without one waits as long as it takes
}

// trailing is a body with the trailers that pass; their values are there when it has ended.
type trailing struct {
	io.ReadCloser
	request *http.Request // the client's
	passing http.Header
}

func (t *trailing) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		for name := range t.passing {
			t.passing[name] = t.request.Trailer[name]
		}
	}
	return n, err
}

// passTrailers leaves a request the trailers that pass. net/http keeps all of them in the request
// itself, which is not what the endpoint gets then.
func (x *exchange) passTrailers(r *http.Request) *http.Request {
	if len(r.Trailer) == 0 {
		return r
	}
	out := r.WithContext(r.Context())
	out.Trailer = http.Header{}
	for name := range r.Trailer {
		if policy.Trailed(name, x.isOwn) {
			out.Trailer[name] = nil
		}
	}
	out.Body = &trailing{r.Body, r, out.Trailer}
	return out
}

// tee is a copy of the body. It is asked for before the body is read.
func (b *body) tee() *tee {
	t := newTee()
	b.tees = append(b.tees, t)
	return t
}

// end is called before the request is over.
func (b *body) end() {
	for _, t := range b.tees {
		t.add(nil, errCopyEnds)
	}
	b.paceMu.Lock()
	defer b.paceMu.Unlock()
	b.control = nil
}

// again reports whether another try can read it all.
func (b *body) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.failed.Load() && (!b.dropped || b.read == 0)
}

// why is the error of a body that can't be read.
func (b *body) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause
}

// replay is the body from the start, for another try.
func (b *body) replay() (io.ReadCloser, error) {
	if !b.again() {
		return nil, errReplaced
	}
	return &view{body: b}, nil
}

// view is the body as one try reads it.
type view struct {
	*body
	idle   *idleTimer
	at     int
	closed atomic.Bool
}

var errReplaced = errors.New("another try reads the body")

func (v *view) Read(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed.Load() || v.at < v.read && v.dropped:
		return 0, errReplaced
	case v.at < v.read:
		n := copy(p, v.kept[v.at:])
		v.at += n
		return n, nil
	}
	v.pace(bodyTimeout)
	n, err := v.source.Read(p)
	v.idle.touch()
	for _, t := range v.tees {
		t.add(p[:n], err)
	}
	if err != nil {
		v.pace(0) // the client's connection is read in the background now
	}
	if errors.Is(err, io.EOF) {
		v.ended.Store(true)
	} else if err != nil {
		v.cause = err
		v.failed.Store(true)
	}
	if n == 0 {
		return n, err
	}
	if v.dropped = v.dropped || v.read+n > maxReplay; v.dropped {
		v.kept = nil
	} else {
		v.kept = append(v.kept, p[:n]...)
	}
	v.read += n
	v.at = v.read
	return n, err
}

// Close ends this try's reading. The server closes the source.
func (v *view) Close() error {
	v.closed.Store(true)
	return nil
}
