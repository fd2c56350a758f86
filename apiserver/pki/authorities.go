package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
)

// Authorities are those of a server. Each vouches for one thing only, so that
// none of its certificates is good for another.
type Authorities struct {
	// Servers vouches for API servers. Clients trust it (ca.crt).
	Servers *Authority
	// Clients vouches for administrators and machines (client-ca.crt).
	Clients *Authority
	// Peers vouches for members of the embedded etcd to each other (etcd-ca.crt).
	Peers *Authority
}

// OpenAll reads the authorities in dir, or makes there those that are missing.
func OpenAll(dir string) (*Authorities, error) {
	a := &Authorities{}
	for _, one := range []struct {
		name, commonName string
		to               **Authority
	}{
		{"ca", "fairway", &a.Servers},
		{"client-ca", "fairway-clients", &a.Clients},
		{"etcd-ca", "fairway-etcd", &a.Peers},
	} {
		var err error
		if *one.to, err = open(dir, one.name, one.commonName); err != nil {
			return nil, fmt.Errorf("certificate authority %s: %w", one.name, err)
		}
	}
	return a, nil
}

// SelfSigned makes a pair that nobody vouches for: its key is known otherwise.
func SelfSigned(name string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name}, LeafLife)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return sign(template, nil, nil)
}

// Peer issues a certificate for both ends of a connection between members.
func (a *Authorities) Peer(name string, ips []net.IP, dnsNames []string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name}, LeafLife)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses, template.DNSNames = ips, dnsNames
	return sign(template, a.Peers.cert, a.Peers.key)
}
