package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// RoundTrip has an endpoint answer, or another backend if its answer is not to be
// handed on.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := x.firstAnswer(r)
	return x.instead(r, response, err)
}

// firstAnswer sends a request to an endpoint of the exchange's pool, to others if
// nothing could be sent, and again as the rule says.
func (x *exchange) firstAnswer(r *http.Request) (*http.Response, error) {
	if x.pool.Invalid != "" {
		return nil, fmt.Errorf("%w: %s", errBadPool, x.pool.Invalid)
	}
	transport := x.engine.upstreams.of(x.pool, r.Header.Get("Upgrade") != "", x.action.ConnectTimeout)
	t := tries{rule: x.action.Retry, repeatable: isRepeatable(r), idempotent: isIdempotent(r.Method)}
	if t.rule != nil && t.rule.Within > 0 {
		t.since = time.Now()
	}
	for {
		ep, ok := x.pick(&t)
		if !ok {
			return nil, cmp.Or(x.lastErr, errNoEndpoints)
		}
		response, sent, err := x.try(transport, r, ep, t.repeatable)
		if err != nil && (r.Context().Err() != nil || errors.Is(err, errClientGone)) {
			return nil, err
		}
		t.harmless = x.judge(ep, response, err) && t.trial && t.repeatable
		if !t.again(response, sent, err) || !x.body.again() {
			return response, err
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
			_ = response.Body.Close()
		}
		t.failed, x.lastErr = append(t.failed, ep), err
		if sent && t.rule != nil && !pause(r.Context(), t.rule.Backoff) {
			return nil, r.Context().Err()
		}
	}
}

// pick chooses an endpoint that hasn't failed yet; where the rule asks for
// another try and none is left, any. Endpoints that came meanwhile count.
func (x *exchange) pick(t *tries) (netip.AddrPort, bool) {
	pool, cookie := x.pool, x.cookie
	if len(t.failed) > 0 {
		if now := x.engine.table.Load().Pools[pool.Name]; now != nil {
			pool = now
		}
	}
	ep, trial, ok := x.engine.pickers.pickFor(pool, x.client, cookie, t.failed, t.repeatable)
	t.trial = trial
	if !ok && len(t.failed) > 0 && t.rule != nil {
		t.failed = nil
		ep, ok = x.engine.pickers.pick(pool, x.client, "", nil)
	}
	return ep, ok
}

// tries are those of a request.
type tries struct {
	rule       *model.Retry // nil if the rule asks for none
	repeatable bool         // the request may be sent twice
	idempotent bool         // it may, if the rule says so
	made       int
	asked      int // by the rule
	failed     []netip.AddrPort
	trial      bool // the endpoint had failed, and this was to see whether it still does
	harmless   bool // it does, and another one may answer
	since      time.Time
}

// again reports whether another try follows one that ended so: as the rule says,
// where nothing was sent, and where an endpoint that went away broke the
// connection off under a request that does no harm twice.
func (t *tries) again(response *http.Response, sent bool, err error) bool {
	t.made++
	if t.rule != nil && t.rule.Within > 0 && time.Since(t.since) >= t.rule.Within {
		return false
	}
	byRule, free := false, false
	switch r := t.rule; {
	case r != nil && r.Attempts == 0:
	case !sent && err != nil:
		byRule, free = r != nil && r.Connection, true
	case r == nil:
		free = err != nil && t.repeatable && isBrokenOff(err)
	case !t.idempotent && r.Idempotent:
	case err == nil:
		byRule = slices.Contains(r.Codes, response.StatusCode)
	case errors.Is(err, errTryTimeout):
		byRule = r.Late || slices.Contains(r.Codes, http.StatusGatewayTimeout)
	default:
		byRule = r.Connection && t.idempotent
	}
	switch {
	case (free || t.harmless) && t.made < maxTries:
		return true
	case byRule && t.asked < t.rule.Attempts:
		t.asked++
		return true
	}
	return false
}

// isRepeatable reports whether a request is safe (RFC 9110, 9.2.1) and has no body.
func isRepeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return r.ContentLength == 0 && r.Header.Get("Upgrade") == ""
	}
	return false
}

// isIdempotent reports whether a method does no more harm twice than once, as nginx has it.
func isIdempotent(method string) bool {
	return method != http.MethodPost && method != http.MethodPatch && method != "LOCK"
}

// isUnsent reports whether nothing of a request was sent, or nothing was looked at.
func isUnsent(err error) bool {
	var connect *connectError
	if errors.As(err, &connect) {
		return true
	}
	switch err.Error() { // net/http has no names for them
	case "http2: client conn could not be established", "http2: client conn not usable",
		"http2: Transport received Server's graceful shutdown GOAWAY":
		return true
	}
	return false
}

// isBrokenOff reports whether a connection ended before there was an answer.
func isBrokenOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		err.Error() == "http: server closed idle connection" // net/http has no name for it
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// try sends the request to one endpoint. Whether anything may have been sent
// says whether others may be tried without being asked to.
func (x *exchange) try(transport *upstream, r *http.Request, ep netip.AddrPort, repeatable bool) (response *http.Response, sent bool, err error) {
	if transport.direct != nil && !x.upgrade && x.action.BackendTimeout == 0 && x.action.ReadTimeout == 0 {
		return x.tryDirect(transport.direct, r, ep, repeatable)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := func() { cancel(nil) }
	if d := x.action.BackendTimeout; d > 0 {
		timer := time.AfterFunc(d, func() { cancel(errTryTimeout) })
		stop = func() { timer.Stop(); cancel(nil) }
	}
	var idle *idleTimer
	if d := x.action.ReadTimeout; d > 0 {
		idle = &idleTimer{after: d, timer: time.AfterFunc(d, func() { cancel(errTryTimeout) })}
		before := stop
		stop = func() { idle.timer.Stop(); before() }
	}
	out := r.WithContext(x.informed(ctx))
	target := *r.URL
	target.Scheme, target.Host = "http", ep.String()
	if x.pool.TLS != nil {
		target.Scheme = "https"
	}
	out.URL = &target
	if r.Body != nil {
		out.Body, out.GetBody = &view{body: x.body, idle: idle}, x.body.replay
	}
	busy := x.engine.pickers.of(x.pool.Name).requests(ep)
	busy.Add(1)
	x.endpoint = ep
	response, err = transport.RoundTrip(out)
	if err == nil && response.StatusCode < 100 {
		_ = response.Body.Close() // it isn't handed on
		err = badStatus(response)
	}
	if err != nil {
		busy.Add(-1)
		if cause := context.Cause(ctx); errors.Is(cause, errTryTimeout) {
			err = cause
		}
		stop()
		return nil, !isUnsent(err), err
	}
	done := sync.OnceFunc(func() { busy.Add(-1); stop() })
	if connection, ok := response.Body.(io.ReadWriteCloser); ok && response.StatusCode == http.StatusSwitchingProtocols {
		context.AfterFunc(r.Context(), done)
		response.Body = &idleConnection{connection, idle}
		return response, true, nil
	}
	response.Body = &endBody{response.Body, idle, done}
	return response, true, nil
}

// badStatus is the error of an answer that is none (RFC 9110, 15).
func badStatus(response *http.Response) error {
	return fmt.Errorf("the endpoint answers with status %03d, which is none", response.StatusCode)
}

// tryDirect is try the short way.
func (x *exchange) tryDirect(d *direct, r *http.Request, ep netip.AddrPort, repeatable bool) (response *http.Response, sent bool, err error) {
	busy := x.engine.pickers.of(x.pool.Name).requests(ep)
	busy.Add(1)
	x.endpoint = ep
	if r.Host == "" { // as HTTP/1.0 may have it
		r.URL.Host = ep.String()
	}
	if r.Body != nil {
		out := *r
		r = &out
		r.Body = &view{body: x.body}
		if len(r.Header["Expect"]) > 0 {
			x.awaited = newAwaited(r.Body)
			r.Body = x.awaited
		}
	}
	response, err = d.roundTrip(r, ep, busy, x, repeatable)
	if err != nil {
		busy.Add(-1)
		return nil, !isUnsent(err), err
	}
	return response, true, nil
}

// idleTimer ends a try when nothing has come or gone for some time. Nil never does.
type idleTimer struct {
	after time.Duration
	timer *time.Timer
}

// touch is called when something has come or gone.
func (t *idleTimer) touch() {
	if t != nil {
		t.timer.Reset(t.after)
	}
}

// idleConnection is what a connection goes on as that was HTTP once.
type idleConnection struct {
	io.ReadWriteCloser
	idle *idleTimer
}

func (c *idleConnection) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.idle.touch()
	return n, err
}

// CloseWrite says that nothing more comes.
func (c *idleConnection) CloseWrite() error { return closeWrite(c.ReadWriteCloser) }

func (c *idleConnection) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	c.idle.touch()
	return n, err
}

// endBody tells when a body is closed.
type endBody struct {
	io.ReadCloser
	idle *idleTimer
	done func()
}

func (b *endBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.idle.touch()
	return n, err
}

func (b *endBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}
