package balance

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
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
	if err == nil {
		return resp, nil
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
