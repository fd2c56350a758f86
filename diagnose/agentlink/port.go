package agentlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// APIServerName is the common name of the certificates of Fairway's API servers.
const APIServerName = "fairway-apiserver"

// Identity is how this machine shows itself to API servers, and by which authority it
// knows them: the TLS configuration of a client of theirs. It is asked for each
// connection, since certificates are renewed.
type Identity func() (*tls.Config, error)

// ServePort answers API servers at a listener until ctx is done. The machine shows the
// certificate by which the API server knows it, and answers only who shows that it is
// an API server: its certificate is the one that this machine trusts when it asks the
// API. What users may ask is the API server's to decide.
func ServePort(ctx context.Context, listener net.Listener, identity Identity, agent Agent) error {
	server := &http.Server{
		Handler: handler(agent), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // whoever knocks would fill the log
		TLSConfig: &tls.Config{
			MinVersion:         tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return forAPIServers(identity) },
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends ServeTLS, which says why
	defer stop()
	err := server.ServeTLS(listener, "", "")
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve the agent's port: %w", err)
}

// forAPIServers is the server's side of a connection.
func forAPIServers(identity Identity) (*tls.Config, error) {
	own, err := identity()
	if err != nil {
		return nil, err
	}
	if own == nil || own.RootCAs == nil {
		return nil, errors.New("no authority vouches for API servers")
	}
	certificate, err := certificateOf(own)
	if err != nil {
		return nil, err
	}
	roots := own.RootCAs
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth:             tls.RequireAnyClientCert, // verified below: API servers show what they serve with
		SessionTicketsDisabled: true,                     // each connection is verified
		VerifyConnection: func(s tls.ConnectionState) error {
			return verify(s, x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, APIServerName)
		},
	}, nil
}

// certificateOf is what a client's configuration shows.
func certificateOf(c *tls.Config) (*tls.Certificate, error) {
	if c.GetClientCertificate != nil {
		return c.GetClientCertificate(&tls.CertificateRequestInfo{Version: tls.VersionTLS13})
	}
	if len(c.Certificates) == 0 {
		return nil, errors.New("this machine has no certificate")
	}
	return &c.Certificates[0], nil
}

// verify reports why the other end isn't who it should be.
func verify(s tls.ConnectionState, options x509.VerifyOptions, name string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no certificate is shown")
	}
	options.Intermediates = x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(options); err != nil {
		return err
	}
	if leaf.Subject.CommonName != name {
		return fmt.Errorf("the certificate is %q's, not %q's", leaf.Subject.CommonName, name)
	}
	return nil
}
