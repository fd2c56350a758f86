package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Certificate makes one for a page that is shared at an address until some time, and its
// fingerprint, as browsers show it.
func Certificate(at netip.Addr, until time.Time) (c tls.Certificate, fingerprint string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, "", fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "fairway web"}, IPAddresses: []net.IP{at.AsSlice()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return c, "", fmt.Errorf("make a certificate: %w", err)
	}
	sum := sha256.Sum256(der)
	fingerprint = strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, fingerprint, nil
}
