// Package pki keeps the certificate authorities of an API server and issues
// what it needs: serving certificates, and client certificates for people and
// machines.
//
//   - pki.go: one authority
//   - authorities.go: those of a server, each for one purpose
//   - rotation.go: how an authority is replaced, in phases
//   - serial.go: the time of issue, which a certificate carries in its serial number
//   - request.go: certificates for keys that somebody else made
//   - key.go: the keys of ServiceAccounts' tokens
//   - kubeconfig.go, file.go: how they are written
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// LeafLife is how long a server's own certificates last. It renews them
	// itself, when a third of that is left.
	LeafLife = 365 * 24 * time.Hour
	// NodeLife is how long a machine's certificate lasts; its agent renews it.
	NodeLife = 30 * 24 * time.Hour
	// backdate forgives clients whose clock is a little behind.
	backdate = time.Hour
)

// Authority is a certificate authority kept in a directory.
type Authority struct {
	// CertPEM are the certificates that are trusted. The first one signs; while it is
	// being replaced there are others (see rotation.go).
	CertPEM []byte
	certs   []*x509.Certificate
	cert    *x509.Certificate
	key     crypto.Signer
}

// Pair is a certificate and its private key, both PEM encoded.
type Pair struct{ Cert, Key []byte }

// Open reads the authority in dir (ca.crt, ca.key), or makes one there the
// first time.
func Open(dir string) (*Authority, error) { return open(dir, "ca", "fairway") }

// open opens the authority in the files NAME.crt and NAME.key.
func open(dir, name, commonName string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create certificate directory: %w", err)
	}
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err := unused(keyFile); err != nil {
			return nil, err
		}
		return create(certFile, keyFile, commonName)
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	return parse(certFile, certPEM, keyPEM)
}

func parse(name string, certPEM, keyPEM []byte) (*Authority, error) {
	certs, keys := blocks(certPEM), blocks(keyPEM)
	if len(certs) == 0 || len(keys) == 0 {
		return nil, fmt.Errorf("read certificate authority %s: it or the key beside it is not PEM encoded", name)
	}
	a := &Authority{CertPEM: certPEM}
	for _, block := range certs {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate authority %s: %w", name, err)
		}
		a.certs = append(a.certs, cert)
	}
	a.cert = a.certs[0]
	for _, block := range keys {
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse key of certificate authority %s: %w", name, err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("parse key of certificate authority %s: %T cannot sign", name, key)
		}
		if public, ok := a.cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && public.Equal(signer.Public()) {
			a.key = signer
		}
	}
	if a.key == nil {
		return nil, fmt.Errorf("certificate authority %s: its key is another one's: restore both from the same backup", name)
	}
	return a, nil
}

// blocks are those of a PEM file.
func blocks(data []byte) []*pem.Block {
	var out []*pem.Block
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, block)
	}
	return out
}

// beginning is how long a crash may lie back that left a key without its certificate.
const beginning = time.Minute

// unused makes sure that no key is overwritten whose certificate was lost. A crash in an
// authority's first moment leaves one behind, too, which nobody knows yet.
func unused(keyFile string) error {
	info, err := os.Stat(keyFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) < beginning {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read certificate authority: %w", err)
	}
	return fmt.Errorf("there is %s, and its certificate isn't beside it: restore that from a backup, or move the key away", keyFile)
}

func create(certFile, keyFile, commonName string) (*Authority, error) {
	template, err := authorityTemplate(pkix.Name{CommonName: commonName})
	if err != nil {
		return nil, err
	}
	pair, err := sign(template, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	// The key first: a crash between the two leaves no certificate behind that
	// would be taken for a whole authority.
	if err := WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return nil, err
	}
	if err := WriteFile(certFile, pair.Cert, 0o644); err != nil {
		return nil, err
	}
	return parse(certFile, pair.Cert, pair.Key)
}

// Server issues a serving certificate for the given addresses and names. The
// authority's follow it in the chain: a machine that joins knows it by its
// hash only, and one that trusts the former authority finds that one's signature.
func (a *Authority) Server(name string, ips []net.IP, dnsNames []string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name}, LeafLife)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = ips
	template.DNSNames = dnsNames
	pair, err := sign(template, a.cert, a.key)
	pair.Cert = append(pair.Cert, a.CertPEM...)
	return pair, err
}

// Client issues a certificate by which a user with groups authenticates.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	return a.ClientFor(LeafLife, user, groups...)
}

// ClientFor is Client for another time than a year.
func (a *Authority) ClientFor(life time.Duration, user string, groups ...string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups}, life)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return sign(template, a.cert, a.key)
}

// Hash names the authority: "sha256:" and the SHA-256 of its public key
// (SubjectPublicKeyInfo) in hexadecimal, as kubeadm prints it.
func (a *Authority) Hash() string { return Hash(a.cert) }

// Hash names a certificate's public key, as Authority.Hash does.
func Hash(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// NotAfter is when the authority ends.
func (a *Authority) NotAfter() time.Time { return a.cert.NotAfter }

func authorityTemplate(subject pkix.Name) (*x509.Certificate, error) {
	template, err := newTemplate(subject, authorityLife)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	return template, nil
}

func newTemplate(subject pkix.Name, life time.Duration) (*x509.Certificate, error) {
	now := time.Now()
	serial, err := newSerial(now)
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(life),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

// sign makes a key and signs the template for it; without an issuer, by itself.
func sign(template, issuer *x509.Certificate, issuerKey crypto.Signer) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate key: %w", err)
	}
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key of %s: %w", template.Subject.CommonName, err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
