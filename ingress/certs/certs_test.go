package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// write puts a new certificate for hosts, and its key, into files.
func write(t *testing.T, cert, key string, hosts ...string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), DNSNames: hosts}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	put(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	put(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, sources ...string) *Files {
	t.Helper()
	f, err := New(sources, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// first names the best certificate for a hostname by its first host.
func first(f *Files, hostname string) string {
	for _, c := range f.Of(hostname) {
		return c.Leaf.DNSNames[0]
	}
	return ""
}

// TestHosts: a certificate serves the hosts that the flag names, or those that it
// names itself, and the closest one counts.
func TestHosts(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("all.crt"), at("all.key"), "all.example")
	write(t, at("many/web.crt"), at("many/web.key"), "web.example.com")
	write(t, at("many/wild.pem"), at("many/wild.key"), "*.example.com")
	write(t, at("many/shop.example/fullchain.pem"), at("many/shop.example/privkey.pem"), "shop.example")
	put(t, at("many/README"), []byte("certbot's"))
	put(t, at("many/alone.key"), nil)
	f := open(t, "*="+at("all.crt")+","+at("all.key"), at("many"))
	for hostname, want := range map[string]string{
		"web.example.com": "web.example.com", "other.example.com": "*.example.com", "a.b.example.com": "all.example",
		"shop.example": "shop.example", "*.example.com": "*.example.com", "else.test": "all.example",
	} {
		if got := first(f, hostname); got != want {
			t.Errorf("%s is served with the certificate of %q, want %q", hostname, got, want)
		}
	}
	if got := len(f.Of("")); got != 4 {
		t.Errorf("a listener for all hosts has %d certificates, want all", got)
	}
	if got := first(open(t, at("many")), "else.test"); got != "" {
		t.Errorf("a host of nobody's is served with that of %s", got)
	}
}

// TestReload: what changes is read again, and what becomes bad leaves the last good
// certificate.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "web.crt"), filepath.Join(dir, "web.key")
	write(t, cert, key, "web.example")
	f := open(t, dir)
	current := func() *tls.Certificate { return f.Of("web.example")[0] }
	before := current()
	if f.Read() {
		t.Error("nothing changed, and something is said to have")
	}
	write(t, cert, key, "web.example")
	if !f.Read() || current() == before {
		t.Error("a renewed certificate isn't taken")
	}
	before = current()
	for _, bad := range []string{"", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if put(t, cert, []byte(bad)); f.Read() || current() != before {
			t.Errorf("%q isn't a certificate, and the last good one is gone", bad)
		}
	}
	write(t, filepath.Join(dir, "new.crt"), filepath.Join(dir, "new.key"), "new.example")
	if !f.Read() || first(f, "new.example") == "" {
		t.Error("a new file isn't found")
	}
	if err := os.Remove(filepath.Join(dir, "new.key")); err != nil {
		t.Fatal(err)
	}
	if !f.Read() || first(f, "new.example") != "" {
		t.Error("a certificate whose key is gone is still served")
	}
}

// TestLinks: links whose targets are replaced are followed, as Kubernetes' volumes are.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("one/tls.crt"), at("one/tls.key"), "web.example")
	write(t, at("two/tls.crt"), at("two/tls.key"), "web.example")
	if err := os.Symlink("one", at("now")); err != nil {
		t.Fatal(err)
	}
	f := open(t, at("now/tls.crt")+","+at("now/tls.key"))
	before := f.Of("web.example")[0]
	if err := os.Symlink("two", at("next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at("next"), at("now")); err != nil {
		t.Fatal(err)
	}
	if !f.Read() || f.Of("web.example")[0] == before {
		t.Error("the link's new target isn't read")
	}
}

// TestFlags: what can't be a certificate is refused at the start.
func TestFlags(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key"), "a.example")
	write(t, filepath.Join(dir, "b.crt"), filepath.Join(dir, "b.key"), "b.example")
	pairOf := func(cert, key string) string { return filepath.Join(dir, cert) + "," + filepath.Join(dir, key) }
	for _, bad := range []string{"", "=", "a=", "a=b", "a.crt,", "=" + pairOf("a.crt", "a.key"), pairOf("a.crt", "b.key"), pairOf("gone", "a.key"), filepath.Join(dir, "gone")} {
		if _, err := New([]string{bad}, quiet); err == nil {
			t.Errorf("--certificate %q is taken", bad)
		}
	}
}
