package native

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/fairway-net/fairway/ingress/model"
)

// maxReplay is how much of a request's body is kept for another try.
const maxReplay = 64 << 10

// body is a request's, which several tries may read from the start as long as
// what was read of it is short.
type body struct {
	mu      sync.Mutex
	source  io.ReadCloser
	kept    []byte // all that was read, unless dropped
	read    int    // from source
	dropped bool
	keeps   bool        // for another try
	failed  atomic.Bool // what the client sends can't be read
}

func newBody(w http.ResponseWriter, r *http.Request, a *model.Action) *body {
	source := r.Body
	if source == nil {
		source = http.NoBody
	}
	if a.MaxBody > 0 {
		source = http.MaxBytesReader(w, source, a.MaxBody)
	}
	return &body{source: source, keeps: a.Retry != nil}
}

// again reports whether another try can read it all.
func (b *body) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.failed.Load() && (!b.dropped || b.read == 0)
}

// view is the body as one try reads it.
type view struct {
	*body
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
	n, err := v.source.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		v.failed.Store(true)
	}
	if n == 0 {
		return n, err
	}
	if v.dropped = v.dropped || !v.keeps || v.read+n > maxReplay; v.dropped {
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
