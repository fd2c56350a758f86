package nodecert

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/internal/machineuser"
)

// TestCredentialOfGateways: only a machine that may serve Gateways gets one, of its own name,
// and not by a join token.
func TestCredentialOfGateways(t *testing.T) {
	for name, c := range map[string]struct {
		of, by string // the machine of the certificate, and who asks
		group  string
		want   string // why not
	}{
		"its own":             {"m1", "system:node:m1", nodesGroup, ""},
		"another one's":       {"m1", "system:node:m2", nodesGroup, "only the machine itself"},
		"by a token":          {"m1", "system:bootstrap:abcdef", bootstrappers, "only the machine itself"},
		"by a gateway":        {"m1", "system:fairway:gateway:m1", machineuser.GatewaysGroup, "only the machine itself"},
		"of one that may not": {"m3", "system:node:m3", nodesGroup, "--gateway-machines"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, 1)
			h.c.mayServe = func(node string) bool { return node != "m3" }
			user := machineuser.User{Node: c.of, ForGateway: true}
			der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user.Name(), Organization: []string{user.Group()}}}, h.key)
			if err != nil {
				t.Fatal(err)
			}
			r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.NewTime(h.clock)}, Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: allowedUsages, Username: c.by, Groups: []string{c.group},
			}}
			if _, err := h.client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), r, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := h.c.sync(t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
			got, err := h.client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "r", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			message := got.Status.Conditions[0].Message
			if signed := len(got.Status.Certificate) > 0; signed != (c.want == "") || !strings.Contains(message, c.want) {
				t.Errorf("signed: %v, %s", signed, message)
			}
			if at, of := issued(got); c.want == "" && (of != c.of || at.IsZero()) {
				t.Errorf("revoking finds a certificate of %q at %s", of, at)
			}
		})
	}
}
