package apiserver

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/rights"
	"github.com/fairway-net/fairway/kube/credentials"
)

// URL is where the API is served.
func (s *Server) URL() string { return s.url }

// CA is the certificate authority of the server, PEM encoded.
func (s *Server) CA() []byte { return s.authorities.Servers.CertPEM }

// AdminKubeconfig is the file by which administrators reach the server.
func (s *Server) AdminKubeconfig() string { return AdminKubeconfig(s.config.DataDir) }

// AdminKubeconfig is where a server with the given data directory writes the
// administrator's kubeconfig.
func AdminKubeconfig(dataDir string) string { return credentials.Administrator(dataDir) }

// EncryptionKeys is the file of the keys that a server with the given data
// directory encrypts Secrets with. Who restores a snapshot needs it too.
func EncryptionKeys(dataDir string) string { return filepath.Join(dataDir, "pki", "secrets.keys") }

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
	return s.Kubeconfig(rights.NodePrefix+node, user.NodesGroup)
}

// Kubeconfig returns a kubeconfig for a user in the given groups.
func (s *Server) Kubeconfig(name string, groups ...string) ([]byte, error) {
	pair, err := s.authorities.Clients.Client(name, groups...)
	if err != nil {
		return nil, err
	}
	return s.authorities.Servers.Kubeconfig(s.url, name, pair)
}

func (s *Server) writeAdminKubeconfig() error {
	return writeAdmin(s.config.DataDir, s.url, s.authorities)
}

// MachineSigner issues the certificates of machines.
func (s *Server) MachineSigner() *pki.Authority { return s.authorities.Clients }

// SecretToken returns a token of a ServiceAccount for a Secret to hold.
func (s *Server) SecretToken(account *corev1.ServiceAccount, secret string) (string, error) {
	return s.access.accounts.IssueForSecret(account, secret)
}

// IsOutdated reports whether a token was signed with a key that is being replaced.
func (s *Server) IsOutdated(token string) bool { return s.access.accounts.IsOutdated(token) }

// OpenToOthers reports whether other machines can reach the server.
func (s *Server) OpenToOthers() bool { return !s.config.BindAddress.IsLoopback() }
