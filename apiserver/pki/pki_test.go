package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if string(a.CertPEM) != string(again.CertPEM) {
		t.Error("opened again, the authority is another")
	}
	for name, want := range map[string]os.FileMode{"ca.key": 0o600, "ca.crt": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode().Perm(), want)
		}
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(again.CertPEM)
	serving, err := a.Server("server", []net.IP{net.ParseIP("10.96.0.1")}, []string{"kubernetes"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.96.0.1", "kubernetes"} {
		if _, err := leaf(t, serving).Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("the serving certificate doesn't hold for %s: %v", name, err)
		}
	}
	client, err := again.Client("system:node:n1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, client)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if cert.Subject.CommonName != "system:node:n1" || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "system:nodes" {
		t.Errorf("the client is %v", cert.Subject)
	}
	kubeconfig, err := a.Kubeconfig("https://127.0.0.1:6443", "n1", client)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" || string(config.CAData) != string(a.CertPEM) {
		t.Errorf("kubeconfig leads to %s", config.Host)
	}
}

func leaf(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// TestPairInOneFile: whoever reads a pair while it is renewed never has the
// certificate of one and the key of another.
func TestPairInOneFile(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "serving.pem")
	write := func() {
		pair, err := a.Server("server", nil, []string{"kubernetes"})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.WriteFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, old := range []string{"serving.crt", "serving.key"} {
		if err := os.WriteFile(filepath.Join(dir, old), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	for _, old := range []string{"serving.crt", "serving.key"} {
		if _, err := os.Stat(filepath.Join(dir, old)); err == nil {
			t.Errorf("%s of an earlier version stays", old)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the key: %v, %v", info, err)
	}
	done, read := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			data, err := os.ReadFile(file)
			if err == nil {
				_, err = tls.X509KeyPair(data, data)
			}
			if err != nil {
				read <- err
				return
			}
			select {
			case <-done:
				read <- nil
				return
			default:
			}
		}
	}()
	for range 50 {
		write()
	}
	close(done)
	if err := <-read; err != nil {
		t.Errorf("a reader met a pair that doesn't belong together: %v", err)
	}
}
