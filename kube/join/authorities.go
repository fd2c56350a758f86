package join

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"

	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/internal/machineuser"
)

// AuthoritiesPath is where servers say what their clients have to know of authorities.
const AuthoritiesPath = "/fairway/authorities"

// Authorities is what clients have to know of them.
type Authorities struct {
	// Servers are the certificates to know servers by, PEM encoded.
	Servers []byte `json:"servers"`
	// Clients names the key that signs clients' certificates now, as those do (their
	// authority key identifier, in hexadecimal).
	Clients string `json:"clients"`
}

// serversFile is what a machine knows servers by. Clients read it again when it changes.
func serversFile(dir string) string { return filepath.Join(dir, "pki", "servers-ca.crt") }

// machine is one that has joined, and renews what it knows.
type machine struct {
	dir    string
	node   string
	config *rest.Config
	store  certificate.FileStore
	log    *slog.Logger
}

// follow takes over what servers say of their authorities: what to know them by, and a
// certificate of the authority that signs now. It reports whether the machine has another
// certificate.
func (m *machine) follow(ctx context.Context) (renewed bool) {
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	renewed, err := m.tryFollow(ctx)
	if err != nil && ctx.Err() == nil {
		m.log.Warn("the servers' authorities could not be read; trying again", "retry-in", LookPeriod, "error", err)
	}
	return renewed
}

func (m *machine) tryFollow(ctx context.Context) (renewed bool, err error) {
	client, err := kubernetes.NewForConfig(rest.CopyConfig(m.config))
	if err != nil {
		return false, fmt.Errorf("make API client: %w", err)
	}
	data, err := client.Discovery().RESTClient().Get().AbsPath(AuthoritiesPath).DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return false, nil // a server of an earlier version
	case err != nil:
		return false, fmt.Errorf("ask for authorities: %w", err)
	}
	var said Authorities
	if err := json.Unmarshal(data, &said); err != nil {
		return false, fmt.Errorf("ask for authorities: %w", err)
	}
	if err := m.knowServers(said.Servers); err != nil {
		return false, err
	}
	current, err := m.store.Current()
	if err != nil {
		return false, fmt.Errorf("read certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(current.Certificate[0])
	if err != nil {
		return false, fmt.Errorf("read certificate: %w", err)
	}
	if said.Clients == "" || hex.EncodeToString(leaf.AuthorityKeyId) == said.Clients {
		return false, nil
	}
	certPEM, keyPEM, err := certificateFor(ctx, client, machineuser.User{Node: m.node}, nil)
	if err != nil {
		return false, fmt.Errorf("renew certificate, whose authority is being replaced: %w", err)
	}
	if _, err := m.store.Update(certPEM, keyPEM); err != nil {
		return false, fmt.Errorf("write certificate: %w", err)
	}
	m.log.Info("this machine has a certificate of the new authority")
	return true, nil
}

// knowServers keeps what the machine knows servers by.
func (m *machine) knowServers(ca []byte) error {
	if _, err := HashPEM(bytes.TrimSpace(ca)); err != nil {
		return fmt.Errorf("read what the servers are known by: %w", err)
	}
	now, err := os.ReadFile(serversFile(m.dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read what the servers are known by: %w", err)
	}
	if !bytes.Equal(now, ca) {
		if err := keptfile.Write(serversFile(m.dir), ca, 0o644); err != nil {
			return err
		}
	}
	if err == nil {
		return nil
	}
	// The kubeconfig is of an earlier version: it has the authority inside.
	member, err := Member(m.dir)
	if err != nil {
		return err
	}
	return writeKubeconfig(m.dir, member.Server, member.Node, ca, m.store.CurrentPath())
}
