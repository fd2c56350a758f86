package native

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// listenerTLS is how a listener's connections are terminated.
type listenerTLS struct{ config *tls.Config }

var errNoListener = errors.New("no listener has the server name")

// tlsOf makes the configuration of a listener; nil if TLS isn't ended here.
func (e *Engine) tlsOf(l *model.Listener) *listenerTLS {
	if l.Mode == model.Passthrough {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, pair := range l.Certificates {
		c.Certificates = append(c.Certificates, *pair)
	}
	if l.Mode == model.HTTP {
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	switch v := l.Clients; {
	case v == nil:
		// Sessions outlive tables. With client certificates they would also
		// outlive what is asked of clients.
		c.WrapSession, c.UnwrapSession = e.tickets.EncryptTicket, e.tickets.DecryptTicket
	case v.Optional:
		c.ClientAuth, c.SessionTicketsDisabled = tls.RequestClientCert, true
	default:
		c.ClientAuth, c.ClientCAs, c.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, v.Roots, true
	}
	return &listenerTLS{c}
}

// terminate puts TLS on a connection; the handshake comes with its first use.
func (s *socket) terminate(c net.Conn) *tls.Conn {
	return tls.Server(&lingering{Conn: c}, &tls.Config{GetConfigForClient: s.configFor})
}

// configFor is the configuration of the listener that a server name leads to. A
// certificate authority that looks whether a host is ours is shown a certificate
// of its own.
func (s *socket) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	name, now := strings.ToLower(hello.ServerName), s.current.Load()
	if slices.Contains(hello.SupportedProtos, challengeProtocol) {
		if c := s.engine.table.Load().Challenges; c != nil && c.Certificates[name] != nil && c.Are(name, now.model.Name) {
			return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*c.Certificates[name]}, NextProtos: []string{challengeProtocol}}, nil
		}
	}
	l := now.model.Listener(name)
	if l == nil || now.tls[l] == nil {
		return nil, errNoListener
	}
	if c, ok := hello.Conn.(*lingering); ok {
		c.clients.Store(l.Clients)
	}
	return now.tls[l].config, nil
}

// isStillLetIn reports whether a request's client is one of those whom its listener lets
// in. When the connection began, others may have been.
func isStillLetIn(r *http.Request, v *model.ClientValidation) bool {
	if v == nil || v.Optional || r.TLS == nil {
		return true
	}
	var below *lingering
	if c, ok := connectionOf(r.Context()).(*tls.Conn); ok {
		below, _ = c.NetConn().(*lingering)
	}
	if below != nil && below.clients.Load() == v {
		return true
	}
	if len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	options := x509.VerifyOptions{Roots: v.Roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := r.TLS.PeerCertificates[0].Verify(options); err != nil {
		return false
	}
	if below != nil {
		below.clients.Store(v)
	}
	return true
}

// challengeProtocol is what a certificate authority speaks (RFC 8737).
const challengeProtocol = "acme-tls/1"

// sort reads the server name of a connection and hands it to whom it is for.
func (s *socket) sort(c net.Conn) {
	name, replay, err := serverName(c)
	if err != nil {
		_ = c.Close()
		return
	}
	now := s.current.Load()
	l := now.model.Listener(name)
	switch {
	case l == nil:
		_ = c.Close()
	case l.Mode == model.HTTP:
		s.accepted.give(s.terminate(replay))
	case l.Mode == model.Passthrough:
		s.relay(replay, l, name)
	default:
		t := s.terminate(replay)
		ctx, cancel := context.WithTimeout(s.streamCtx, headerTimeout)
		defer cancel()
		if t.HandshakeContext(ctx) != nil {
			_ = c.Close()
			return
		}
		s.relay(t, l, name)
	}
}

// serverName reads a ClientHello, and returns the connection as it was before.
func serverName(c net.Conn) (string, net.Conn, error) {
	if err := c.SetReadDeadline(time.Now().Add(headerTimeout)); err != nil {
		return "", nil, err
	}
	var name string
	var read bytes.Buffer
	seen := errors.New("seen")
	err := tls.Server(readOnly{io.TeeReader(c, &read)}, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name = strings.ToLower(hello.ServerName)
		return nil, seen
	}}).Handshake()
	if !errors.Is(err, seen) {
		return "", nil, err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return "", nil, err
	}
	return name, &replayed{Conn: c, read: &read}, nil
}

// readOnly is a connection of which only reading works.
type readOnly struct{ io.Reader }

func (readOnly) Write(b []byte) (int, error)      { return len(b), nil }
func (readOnly) Close() error                     { return nil }
func (readOnly) LocalAddr() net.Addr              { return nil }
func (readOnly) RemoteAddr() net.Addr             { return nil }
func (readOnly) SetDeadline(time.Time) error      { return nil }
func (readOnly) SetReadDeadline(time.Time) error  { return nil }
func (readOnly) SetWriteDeadline(time.Time) error { return nil }

// replayed is a connection whose first bytes have been read already.
type replayed struct {
	net.Conn
	read *bytes.Buffer // nil once it is empty
}

func (r *replayed) Read(b []byte) (int, error) {
	if r.read != nil {
		if r.read.Len() > 0 {
			return r.read.Read(b)
		}
		r.read = nil
	}
	return r.Conn.Read(b)
}

func (r *replayed) CloseWrite() error { return closeWrite(r.Conn) }

// closeWrite says to the other side that nothing more comes.
func closeWrite(c io.Closer) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
