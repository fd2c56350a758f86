package nodecert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/fairway-net/fairway/kube/join"
)

// FuzzRequest: a request for a certificate that is taken names a machine, and nothing besides.
func FuzzRequest(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{nodePrefix + "n1", nodePrefix, "admin", nodePrefix + "a/b"} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: name, Organization: []string{nodesGroup}},
		}, key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), string(certificatesv1.UsageClientAuth))
	}
	f.Fuzz(func(t *testing.T, request []byte, usage string) {
		wanted, user, reason := parse(&certificatesv1.CertificateSigningRequest{
			Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, Usages: []certificatesv1.KeyUsage{certificatesv1.KeyUsage(usage)}},
		})
		if reason != "" {
			return
		}
		if join.NameProblem(user.Node) != "" || !slices.Equal(wanted.Subject.Organization, []string{user.Group()}) || len(wanted.DNSNames) > 0 {
			t.Errorf("taken: %+v of %+v", user, wanted.Subject)
		}
	})
}
