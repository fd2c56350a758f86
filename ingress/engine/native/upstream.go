package native

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/ingress/model"
)

const (
	connectTimeout = 5 * time.Second
	upstreamIdle   = time.Minute // how long connections to endpoints are kept for the next request
	maxTries       = 4           // of a request of which nothing was sent
	maxUpstreams   = 32          // before those that no pool has any more are looked for
)

// lossTimeout is how long an endpoint may acknowledge nothing, or say nothing to a ping.
var lossTimeout = 20 * time.Second

var (
	errNoEndpoints = errors.New("no endpoint is ready")
	errBadPool     = errors.New("the backend can't be used")
	errTryTimeout  = errors.New("the backend took too long")
)

// upstreams are the clients of endpoints, by how they are spoken to.
type upstreams struct {
	mu    sync.Mutex
	known map[upstreamKey]*upstream
}

type upstreamKey struct {
	protocol model.Protocol
	tls      string
	connect  time.Duration
	proxy    model.ProxyVersion
}

// upstream is a client of endpoints.
type upstream struct {
	*http.Transport
	direct *direct // for requests that it can send; nil if endpoints are spoken to otherwise
}

// of returns the client for a pool. Requests to upgrade need HTTP/1.1.
func (u *upstreams) of(pool *model.Pool, upgrade bool, connect time.Duration) *upstream {
	key := upstreamKey{protocol: pool.Protocol, connect: connect, proxy: pool.Proxy}
	if upgrade || pool.Proxy != model.ProxyNone {
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
	d := dialer{Dialer: net.Dialer{Timeout: connect, Control: noticeLoss}, tls: clientTLS(pool.TLS), proxy: pool.Proxy}
	if d.tls != nil && key.protocol == model.HTTP2 {
		d.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	plain := d.plain
	if key.protocol == model.H2C {
		plain = d.silent
	}
	t := &upstream{Transport: &http.Transport{
		DialContext:         plain,
		DialTLSContext:      d.secured,
		Protocols:           &protocols,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     upstreamIdle,
		DisableKeepAlives:   pool.Proxy != model.ProxyNone, // a connection is one client's
		DisableCompression:  true,                          // bytes go through as they are
		WriteBufferSize:     8 << 10,
		ReadBufferSize:      8 << 10,

		MaxResponseHeaderBytes: maxAnswerHeaders,
		ExpectContinueTimeout:  continueTimeout,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: lossTimeout / 2, PingTimeout: lossTimeout / 2, WriteByteTimeout: lossTimeout,
		},
	}}
	if key.protocol == model.HTTP1 && key.tls == "" && key.proxy == model.ProxyNone {
		t.direct = &direct{dial: d.plain}
	}
	if u.known == nil {
		u.known = map[upstreamKey]*upstream{}
	}
	u.known[key] = t
	return t
}

// keep forgets clients that no pool of the table has any more, once there are many:
// certificates and authorities that were renewed have left theirs.
func (u *upstreams) keep(table *model.Table) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.known) <= maxUpstreams {
		return
	}
	used := map[string]bool{"": true}
	for _, p := range table.Pools {
		if p.TLS != nil {
			used[p.TLS.Key] = true
		}
	}
	for key, t := range u.known {
		if !used[key.tls] {
			delete(u.known, key)
			t.CloseIdleConnections()
		}
	}
}

// noticeLoss has a connection end on which nothing is acknowledged.
func noticeLoss(_, _ string, c syscall.RawConn) error {
	var err error
	failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(lossTimeout.Milliseconds()))
	})
	return errors.Join(failed, err)
}

// dialer connects to endpoints. Its errors say that nothing of a request was sent.
type dialer struct {
	net.Dialer
	tls   *tls.Config
	proxy model.ProxyVersion
}

// connectError is that of an endpoint to which there is no connection.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

func (d *dialer) plain(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, &connectError{err}
	}
	if err := sayWhose(ctx, c, d.proxy); err != nil {
		_ = c.Close()
		return nil, &connectError{err}
	}
	return c, nil
}

// silent connects for HTTP/2, where a server speaks before it looks at a request
// (RFC 9113, 3.4: its SETTINGS). If the connection ends before that, as those do
// that waited at an endpoint that ended, nothing was looked at.
func (d *dialer) silent(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.plain(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &silent{Conn: c}, nil
}

// silent is a connection whose errors are those of connecting until something
// was heard.
type silent struct {
	net.Conn
	heard atomic.Bool
}

func (s *silent) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 && !s.heard.Load() {
		s.heard.Store(true)
	}
	return n, s.classed(err)
}

func (s *silent) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	return n, s.classed(err)
}

func (s *silent) classed(err error) error {
	if err == nil || s.heard.Load() {
		return err
	}
	return &connectError{err}
}

func (d *dialer) secured(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.plain(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address) // of an endpoint, which has both
	}
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, &connectError{fmt.Errorf("TLS: %w", err)}
	}
	return t, nil
}

func (u *upstreams) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.known {
		t.CloseIdleConnections()
		if t.direct != nil {
			t.direct.close()
		}
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
