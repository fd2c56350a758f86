package engines

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// testCiphers: old versions of TLS, and ciphers that are known to be weak or that let who
// gets the key later read everything, are refused, also with a key of RSA, for which
// there are more of them.
func testCiphers(t *testing.T, r *rig) {
	const name = "a.example.com"
	e := r.endpoint("e", nil)
	l := &model.Listener{Name: "ns/gw/l", Certificates: []*tls.Certificate{rsaCertificate(t, name)}}
	l.SetHosts([]*model.Host{{Rules: []*model.Rule{below("/", to("p"))}}})
	r.apply(tableOf(&model.Socket{Name: "ns/gw:443", Port: 443, TLS: true, Listeners: []*model.Listener{l}}, pool("p", e)))
	handshake := func(version uint16, suites ...uint16) error {
		d := &net.Dialer{Timeout: time.Minute}
		c, err := tls.DialWithDialer(d, "tcp", r.address().String(), &tls.Config{
			ServerName: name, InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, CipherSuites: suites, //nolint:gosec // what it is about
		})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		if err := handshake(version); (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	served := 0
	for _, s := range tls.CipherSuites() {
		if len(s.SupportedVersions) > 0 && s.SupportedVersions[0] != tls.VersionTLS13 && handshake(tls.VersionTLS12, s.ID) == nil {
			served++
		}
	}
	if served == 0 {
		t.Error("no good cipher of TLS 1.2 is spoken")
	}
	for _, s := range tls.InsecureCipherSuites() {
		if err := handshake(tls.VersionTLS12, s.ID); err == nil {
			t.Errorf("%s is spoken", s.Name)
		}
	}
}

// rsaCertificate makes one whose key is of RSA.
func rsaCertificate(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: c}
}
