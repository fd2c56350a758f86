package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/apiserver/registry"
	"github.com/fairway-net/fairway/internal/revocation"
)

// nodeAgents is how this server reaches agents, for nodes/NAME/proxy.
func (s *Server) nodeAgents() registry.NodeAgents {
	return registry.NodeAgents{
		Socket: s.config.AgentSocket,
		TLS: func(node string) *tls.Config {
			return &tls.Config{
				MinVersion: tls.VersionTLS13,
				// It shows what it serves the API with, by which machines know it.
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					files := servingFiles(s.config.DataDir)
					pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
					return &pair, err
				},
				// Machines have certificates of clients, without addresses: they are known by name.
				InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
				VerifyConnection: func(state tls.ConnectionState) error {
					return s.verifyMachine(state, node)
				},
			}
		},
	}
}

// verifyMachine reports why the other end isn't the agent of a node.
func (s *Server) verifyMachine(state tls.ConnectionState, node string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the agent shows no certificate")
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	options.Roots.AppendCertsFromPEM(s.authorities.Clients.CertPEM)
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(options); err != nil {
		return fmt.Errorf("verify the agent of node %s: %w", node, err)
	}
	if want := identity.NodePrefix + node; leaf.Subject.CommonName != want {
		return fmt.Errorf("the agent is %q, not %q", leaf.Subject.CommonName, want)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return (&identity.Revocable{Objects: s.access.objects}).Check(ctx, node, revocation.IssuedAt(leaf))
}
