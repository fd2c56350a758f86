package model

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
)

// TestSign: what is renewed under its name is another key, and what is the same the same.
func TestSign(t *testing.T) {
	base := func() *BackendTLS {
		return &BackendTLS{
			ServerName: "a", Authorities: []*x509.Certificate{{Raw: []byte("ca")}}, Roots: x509.NewCertPool(),
			Certificate: &tls.Certificate{Certificate: [][]byte{[]byte("own")}},
		}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*BackendTLS){
		"nothing": func(*BackendTLS) {}, "authority": func(b *BackendTLS) { b.Authorities[0].Raw = []byte("new") }, "no authority": func(b *BackendTLS) { b.Authorities = nil },
		"the system's": func(b *BackendTLS) { b.Authorities, b.Roots = nil, nil }, "certificate": func(b *BackendTLS) { b.Certificate.Certificate[0] = []byte("new") },
		"no certificate": func(b *BackendTLS) { b.Certificate = nil }, "name": func(b *BackendTLS) { b.ServerName = "b" }, "names": func(b *BackendTLS) { b.Names = []string{"b"} },
		"URI": func(b *BackendTLS) { b.URIs = []string{"b"} }, "any": func(b *BackendTLS) { b.Insecure = true },
	} {
		one, again := base(), base()
		change(one)
		change(again)
		one.Sign()
		if again.Sign(); again.Key != one.Key {
			t.Errorf("%s: another key for the same", name)
		}
		if other := seen[one.Key]; other != "" {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[one.Key] = name
	}
}
