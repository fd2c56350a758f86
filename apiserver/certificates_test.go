package apiserver

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/pem"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// TestCertificates counts how often a certificate is checked, and that it is
// nobody's any more once it has expired.
func TestCertificates(t *testing.T) {
	ours, err := pki.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := pki.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(ours.CertPEM)
	checks, now := 0, time.Now()
	c := newCertificates(func() (stdx509.VerifyOptions, bool) {
		checks++
		return stdx509.VerifyOptions{Roots: roots, KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}, CurrentTime: now}, true
	})
	c.now = func() time.Time { return now }
	ask := func(certificate *stdx509.Certificate) (name string, groups []string) {
		t.Helper()
		req := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*stdx509.Certificate{certificate}}}
		response, ok, err := c.AuthenticateRequest(req)
		if ok != (err == nil) {
			t.Fatalf("authenticated %t with error %v", ok, err)
		}
		if !ok {
			return "", nil
		}
		return response.User.GetName(), response.User.GetGroups()
	}
	anna, bert, eve := issue(t, ours, "anna"), issue(t, ours, "bert"), issue(t, theirs, "anna")
	for range 3 {
		for name, certificate := range map[string]*stdx509.Certificate{"anna": anna, "bert": bert} {
			if got, groups := ask(certificate); got != name || !slices.Equal(groups, []string{"people"}) {
				t.Errorf("%s's certificate is %s's of %v", name, got, groups)
			}
		}
	}
	if checks != 2 {
		t.Errorf("two certificates were checked %d times", checks)
	}
	for range 2 {
		if got, _ := ask(eve); got != "" {
			t.Errorf("another authority's certificate is %s's", got)
		}
	}
	if checks != 4 {
		t.Errorf("a refused certificate was remembered: %d checks, want 4", checks)
	}
	for _, when := range []time.Time{anna.NotAfter.Add(time.Second), anna.NotBefore.Add(-time.Second)} {
		now = when
		if got, _ := ask(anna); got != "" {
			t.Errorf("at %v the certificate is still %s's", when, got)
		}
	}
}

func issue(t *testing.T, authority *pki.Authority, name string) *stdx509.Certificate {
	t.Helper()
	pair, err := authority.Client(name, "people")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	certificate, err := stdx509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
