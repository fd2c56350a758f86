package balance

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// transport sends requests to the server in use.
type transport struct {
	balancer *Balancer
	base     http.RoundTripper
	own      string // the host that requests are made for
}

// RoundTrip implements http.RoundTripper. A request that no connection could be
// made for goes to the next server.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != t.own {
		return t.base.RoundTrip(req)
	}
	t.balancer.once.Do(func() { t.balancer.settle(req.Context()) })
	current := t.balancer.using()
	resp, err := t.send(req, current, current.server)
	switch {
	case err == nil && resp.StatusCode != http.StatusUnauthorized:
		return resp, nil
	case err == nil:
		return t.elsewhere(req, current, resp), nil
	}
	t.balancer.suspect()
	if !notConnected(err) || req.Context().Err() != nil || req.Body != nil && req.GetBody == nil {
		return nil, err
	}
	for _, other := range t.balancer.others(current.server) {
		again, bodyErr := rewind(req)
		if bodyErr != nil {
			return nil, errors.Join(err, bodyErr)
		}
		resp, otherErr := t.send(again, current, other)
		if otherErr == nil {
			t.balancer.move(current, other)
			return resp, nil
		}
		if !notConnected(otherErr) {
			return nil, otherErr
		}
	}
	return nil, err
}

// elsewhere asks the other servers when one doesn't accept who the client is: its
// clock may be off, so that certificates aren't valid yet, or no more. If another
// one accepts it, that is in use from now on.
func (t *transport) elsewhere(req *http.Request, current *use, refusal *http.Response) *http.Response {
	if req.Body != nil && req.GetBody == nil || !t.balancer.mayAskOthers(time.Now()) {
		return refusal
	}
	for _, other := range t.balancer.others(current.server) {
		again, err := rewind(req)
		if err != nil {
			return refusal
		}
		resp, err := t.send(again, current, other)
		if err != nil {
			continue
		}
		if resp.StatusCode != http.StatusUnauthorized {
			_ = refusal.Body.Close() // what it says doesn't matter any more
			t.balancer.move(current, other)
			return resp
		}
		_ = resp.Body.Close() // the first refusal says the same
	}
	return refusal
}

// send sends a request to a server. It ends when that is replaced by another.
func (t *transport) send(req *http.Request, current *use, server *url.URL) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	leave := func() bool { return true }
	if server == current.server {
		leave = context.AfterFunc(current.ctx, func() { cancel(context.Cause(current.ctx)) })
	}
	sent := req.Clone(ctx)
	sent.URL.Host, sent.Host = server.Host, ""
	resp, err := t.base.RoundTrip(sent)
	if err != nil {
		if moved := context.Cause(ctx); errors.Is(moved, errMoved) {
			err = moved
		}
		leave()
		cancel(nil)
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, end: sync.OnceFunc(func() {
		leave()
		cancel(nil)
	})}
	return resp, nil
}

// body gives up the request's context when it has been read.
type body struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// notConnected says whether a request failed before anything was sent.
func notConnected(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func rewind(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	if req.Body == nil {
		return again, nil
	}
	var err error
	again.Body, err = req.GetBody()
	return again, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }
