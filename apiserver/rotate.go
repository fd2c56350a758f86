package apiserver

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// RotateCertificates renews the serving certificate, for the names that it had,
// and the administrator's kubeconfig of a server with this data directory. The
// server may run: it reads the serving certificate anew.
func RotateCertificates(dataDir string) error {
	files := servingFiles(dataDir)
	old, err := readCertificate(files.CertFile)
	if err != nil {
		return err
	}
	authorities, err := pki.OpenAll(filepath.Join(dataDir, "pki"))
	if err != nil {
		return err
	}
	serving, err := authorities.Servers.Server(old.Subject.CommonName, old.IPAddresses, old.DNSNames)
	if err != nil {
		return err
	}
	if err := serving.WriteFile(files.CertFile); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", AdminKubeconfig(dataDir))
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	return writeAdmin(dataDir, config.Host, authorities)
}

// readCertificate reads the first certificate in a PEM file.
func readCertificate(file string) (*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return firstCertificate(file, data)
}

// firstCertificate reads the first certificate of PEM data, which came from somewhere.
func firstCertificate(from string, data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("read certificate %s: not PEM encoded", from)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate %s: %w", from, err)
	}
	return cert, nil
}

// writeAdmin writes the administrator's kubeconfig.
func writeAdmin(dataDir, url string, authorities *pki.Authorities) error {
	const name = "admin"
	pair, err := authorities.Clients.Client(name, user.SystemPrivilegedGroup)
	if err != nil {
		return err
	}
	data, err := authorities.Servers.Kubeconfig(url, name, pair)
	if err != nil {
		return err
	}
	return pki.WriteFile(AdminKubeconfig(dataDir), data, 0o600)
}
