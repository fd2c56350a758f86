package apiserver

import (
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// URL is where the API is served.
func (s *Server) URL() string { return s.url }

// CA is the certificate authority of the server, PEM encoded.
func (s *Server) CA() []byte { return s.authority.CertPEM }

// AdminKubeconfig is the file by which administrators reach the server.
func (s *Server) AdminKubeconfig() string { return AdminKubeconfig(s.config.DataDir) }

// AdminKubeconfig is where a server with the given data directory writes the
// administrator's kubeconfig.
func AdminKubeconfig(dataDir string) string { return filepath.Join(dataDir, "admin.kubeconfig") }

// LoopbackConfig is a client configuration for this process, with all rights
// and without rate limits.
func (s *Server) LoopbackConfig() *rest.Config {
	c := rest.CopyConfig(s.loopback)
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// NodeKubeconfig returns a kubeconfig with a node's rights.
func (s *Server) NodeKubeconfig(node string) ([]byte, error) {
	return s.Kubeconfig(nodePrefix+node, nodesGroup)
}

// Kubeconfig returns a kubeconfig for a user in the given groups.
func (s *Server) Kubeconfig(user string, groups ...string) ([]byte, error) {
	pair, err := s.authority.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return s.authority.Kubeconfig(s.url, user, pair)
}

func (s *Server) writeAdminKubeconfig() error {
	data, err := s.Kubeconfig("admin", "system:masters")
	if err != nil {
		return err
	}
	return pki.WriteFile(s.AdminKubeconfig(), data, 0o600)
}
