package native

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

const (
	connectTimeout = 5 * time.Second
	maxTries       = 4 // of a request of which nothing was sent
)

var (
	errNoEndpoints = errors.New("no endpoint is ready")
	errBadPool     = errors.New("the backend can't be used")
	errTryTimeout  = errors.New("the backend took too long")
)

// upstreams are the clients of endpoints, by how they are spoken to.
type upstreams struct {
	mu    sync.Mutex
	known map[upstreamKey]*http.Transport
}

type upstreamKey struct {
	protocol model.Protocol
	tls      string
	connect  time.Duration
}

// of returns the client for a pool. Requests to upgrade need HTTP/1.1.
func (u *upstreams) of(pool *model.Pool, upgrade bool, connect time.Duration) *http.Transport {
	key := upstreamKey{protocol: pool.Protocol, connect: connect}
	if upgrade {
		key.protocol = model.HTTP1
	}
	if pool.TLS != nil {
		key.tls = pool.TLS.Key
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.known[key]; t != nil {
		return t
	}
	var protocols http.Protocols
	protocols.SetHTTP1(key.protocol != model.H2C)
	protocols.SetHTTP2(key.protocol == model.HTTP2)
	protocols.SetUnencryptedHTTP2(key.protocol == model.H2C)
	if connect == 0 {
		connect = connectTimeout
	}
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: connect}).DialContext,
		Protocols:           &protocols,
		TLSClientConfig:     clientTLS(pool.TLS),
		TLSHandshakeTimeout: headerTimeout,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true, // bytes go through as they are
		WriteBufferSize:     8 << 10,
		ReadBufferSize:      8 << 10,
	}
	if u.known == nil {
		u.known = map[upstreamKey]*http.Transport{}
	}
	u.known[key] = t
	return t
}

func (u *upstreams) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.known {
		t.CloseIdleConnections()
	}
}

// clientTLS knows endpoints by name, or by one of several names and URIs.
func clientTLS(b *model.BackendTLS) *tls.Config {
	if b == nil {
		return nil
	}
	c := &tls.Config{ServerName: b.ServerName, RootCAs: b.Roots, MinVersion: tls.VersionTLS12, InsecureSkipVerify: b.Insecure}
	if b.Certificate != nil {
		c.Certificates = []tls.Certificate{*b.Certificate}
	}
	if len(b.Names)+len(b.URIs) > 0 {
		c.InsecureSkipVerify = true // of the name; VerifyConnection does it all
		c.VerifyConnection = func(state tls.ConnectionState) error { return verify(b, state.PeerCertificates) }
	}
	return c
}

func verify(b *model.BackendTLS, chain []*x509.Certificate) error {
	options := x509.VerifyOptions{Roots: b.Roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return err
	}
	for _, name := range b.Names {
		if chain[0].VerifyHostname(name) == nil {
			return nil
		}
	}
	for _, u := range chain[0].URIs {
		if slices.Contains(b.URIs, u.String()) {
			return nil
		}
	}
	return errors.New("the certificate has none of the names that it must have")
}

// RoundTrip sends a request to an endpoint of the exchange's pool, to others if
// nothing could be sent, and again as the rule says.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	pool := x.pool
	if pool.Invalid != "" {
		return nil, fmt.Errorf("%w: %s", errBadPool, pool.Invalid)
	}
	transport := x.engine.upstreams.of(pool, r.Header.Get("Upgrade") != "", x.action.ConnectTimeout)
	retry, retries := x.action.Retry, 0
	var failed []netip.AddrPort
	for tries := 1; ; tries++ {
		ep, ok := x.engine.pickers.pick(pool, x.client, x.cookie, failed)
		if !ok && len(failed) > 0 && retry != nil { // none is left that hasn't failed
			failed = nil
			ep, ok = x.engine.pickers.pick(pool, x.client, "", nil)
		}
		if !ok {
			if x.lastErr != nil {
				return nil, x.lastErr
			}
			return nil, errNoEndpoints
		}
		response, sent, err := x.try(transport, r, ep)
		again := false
		switch {
		case err == nil:
			again = retry != nil && retries < retry.Attempts && slices.Contains(retry.Codes, response.StatusCode)
		case r.Context().Err() != nil:
			return nil, err
		case !sent:
			again = tries < maxTries || retry != nil && retry.Connection && retries < retry.Attempts
		case errors.Is(err, errTryTimeout):
			again = retry != nil && retries < retry.Attempts && slices.Contains(retry.Codes, http.StatusGatewayTimeout)
		default:
			again = retry != nil && retry.Connection && retries < retry.Attempts
		}
		if !again || sent && !x.body.again() {
			return response, err
		}
		if sent {
			retries++
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
			_ = response.Body.Close()
		}
		failed, x.lastErr = append(failed, ep), err
		if sent && !pause(r.Context(), retry.Backoff) {
			return nil, r.Context().Err()
		}
	}
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
func (x *exchange) try(transport *http.Transport, r *http.Request, ep netip.AddrPort) (response *http.Response, sent bool, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := func() { cancel(nil) }
	if d := x.action.BackendTimeout; d > 0 {
		timer := time.AfterFunc(d, func() { cancel(errTryTimeout) })
		stop = func() { timer.Stop(); cancel(nil) }
	}
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "http", ep.String()
	if x.pool.TLS != nil {
		out.URL.Scheme = "https"
	}
	if r.Body != nil {
		out.Body = &view{body: x.body}
	}
	busy := x.engine.pickers.of(x.pool.Name).requests(ep)
	busy.Add(1)
	x.endpoint = ep
	response, err = transport.RoundTrip(out)
	if err != nil {
		busy.Add(-1)
		if cause := context.Cause(ctx); errors.Is(cause, errTryTimeout) {
			err = cause
		}
		stop()
		var dial *net.OpError
		return nil, !(errors.As(err, &dial) && dial.Op == "dial"), err
	}
	done := sync.OnceFunc(func() { busy.Add(-1); stop() })
	if response.StatusCode == http.StatusSwitchingProtocols { // the body is the connection
		context.AfterFunc(r.Context(), done)
		return response, true, nil
	}
	response.Body = &endBody{response.Body, done}
	return response, true, nil
}

// endBody tells when a body is closed.
type endBody struct {
	io.ReadCloser
	done func()
}

func (b *endBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}
