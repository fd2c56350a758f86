package native

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

const (
	maxMirrored   = 1 << 20 // of a body that waits for a copy's endpoint; a copy that is further behind ends
	maxCopies     = 128     // of requests, under way at a time; there are none of others
	mirrorTimeout = 30 * time.Second
)

// mirror sends copies of a share of requests. What becomes of them changes
// nothing for the client: a copy's body is what has been read for the request itself.
func (x *exchange) mirror(r *http.Request, mirrors []model.Mirror) {
	table := x.engine.table.Load()
	for _, m := range mirrors {
		pool := table.Pools[m.Pool]
		if pool == nil || pool.Invalid != "" || rand.IntN(m.Denominator) >= m.Numerator {
			continue
		}
		ep, ok := x.engine.pickers.pick(pool, x.client, "", nil)
		if !ok {
			continue
		}
		if x.engine.copies.Add(1) > maxCopies {
			x.engine.copies.Add(-1)
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), mirrorTimeout)
		out := r.Clone(ctx)
		out.RequestURI, out.Body = "", nil
		policy.SetPath(out.URL, x.request.Path)
		out.URL.Scheme, out.URL.Host = "http", ep.String()
		if pool.TLS != nil {
			out.URL.Scheme = "https"
		}
		out.Header.Del("Expect")
		x.say(out.Header)
		policy.DropFolded(out.Header, x.isOwn)
		x.addAuthorized(out.Header)
		policy.Edit(out.Header, &x.action.Request)
		if m.Host != "" {
			out.Host = m.Host
		}
		switch {
		case m.Bodiless:
			out.ContentLength, out.TransferEncoding = 0, nil
		case r.ContentLength != 0:
			out.Body = x.body.tee()
		}
		transport := x.engine.upstreams.of(pool, false, 0)
		go func() {
			defer x.engine.copies.Add(-1)
			defer cancel()
			if response, err := transport.RoundTrip(out); err == nil {
				_, _ = io.Copy(io.Discard, response.Body) // what it says counts for nothing
				_ = response.Body.Close()
			}
		}()
	}
}

var errCopyEnds = errors.New("the copy ends before the request")

// tee is a body's copy: what was read of it, until whoever reads the copy is too far
// behind.
type tee struct {
	mu     sync.Mutex
	more   *sync.Cond
	waits  bytes.Buffer
	end    error // after what waits; nil if more comes
	closed bool
}

func newTee() *tee {
	t := &tee{}
	t.more = sync.NewCond(&t.mu)
	return t
}

// add gives the copy what was read, and what the reading ended with.
func (t *tee) add(b []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.end != nil || t.closed:
		return
	case t.waits.Len()+len(b) > maxMirrored:
		t.waits.Reset()
		t.end = errCopyEnds
	default:
		_, _ = t.waits.Write(b) // which never fails
		t.end = err
	}
	t.more.Broadcast()
}

func (t *tee) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.waits.Len() == 0 {
		if t.closed {
			return 0, errCopyEnds
		}
		if t.end != nil {
			return 0, t.end
		}
		t.more.Wait()
	}
	return t.waits.Read(p)
}

func (t *tee) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.more.Broadcast()
	return nil
}
