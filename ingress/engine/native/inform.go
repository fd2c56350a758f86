package native

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"time"
)

const continueTimeout = time.Second // that an endpoint has to say whether it wants a body

// informer hands on answers before the answer. net/http's client tells of them in a
// goroutine of its own, which may be late.
type informer struct {
	mu   sync.Mutex
	over bool
}

func (i *informer) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
}

// awaited is a body that is sent once the endpoint wants it (RFC 9110, 10.1.1), or says
// nothing for a while. With another answer, it stays where it is.
type awaited struct {
	io.ReadCloser
	allowed, refused chan struct{}
	allow, refuse    func()
	timer            *time.Timer
}

var errUnwanted = errors.New("the endpoint has answered without the body")

func newAwaited(body io.ReadCloser) *awaited {
	a := &awaited{ReadCloser: body, allowed: make(chan struct{}), refused: make(chan struct{})}
	a.allow, a.refuse = sync.OnceFunc(func() { close(a.allowed) }), sync.OnceFunc(func() { close(a.refused) })
	a.timer = time.AfterFunc(continueTimeout, a.allow)
	return a
}

func (a *awaited) Read(p []byte) (int, error) {
	select {
	case <-a.allowed:
		return a.ReadCloser.Read(p)
	case <-a.refused:
		return 0, errUnwanted
	}
}

// answered is called with each answer of the endpoint, or when there is none.
func (a *awaited) answered(status int) {
	switch {
	case a == nil:
	case status == http.StatusContinue:
		a.allow()
	case status == 0 || status >= http.StatusOK:
		a.timer.Stop()
		a.refuse()
	}
}

// inform hands on one. That the endpoint wants the body is said by the server once the
// body is read, which is then.
func (x *exchange) inform(status int, header http.Header) {
	x.informer.mu.Lock()
	defer x.informer.mu.Unlock()
	if x.informer.over || x.writer == nil || status == http.StatusContinue {
		return
	}
	h := x.writer.Header()
	for name, values := range header {
		h[name] = values
	}
	x.writer.WriteHeader(status)
	clear(h)
}

// informed has net/http's client tell of answers before the answer.
func (x *exchange) informed(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
		x.inform(status, http.Header(header))
		return nil
	}})
}
