package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shown is the certificate that a server shows now.
func shown(t *testing.T, s *Server) *x509.Certificate {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA())
	c, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.config.Port)), &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // of a test
	return c.ConnectionState().PeerCertificates[0]
}

// TestServerRenewsItsCertificates: a server renews what it shows when a third of it
// is left, and `certs rotate` does so at once; either is shown without a restart.
// It says 30 days before an authority ends, which nothing renews.
func TestServerRenewsItsCertificates(t *testing.T) {
	s := start(t, testConfig(t))
	before := shown(t, s)
	renewed := func(how string) {
		t.Helper()
		eventually(t, "that the server shows another certificate after "+how, func() bool { return !shown(t, s).Equal(before) })
		before = shown(t, s)
		if _, err := client(t, s).CoreV1().Namespaces().List(within(t), metav1.ListOptions{}); err != nil {
			t.Errorf("after %s: %v", how, err)
		}
	}
	if err := s.renewDue(time.Now().Add(200 * 24 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	onDisk := func() *x509.Certificate {
		t.Helper()
		cert, err := readCertificate(servingFiles(s.config.DataDir).CertFile)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	if !onDisk().Equal(before) {
		t.Error("a certificate that lasts for long yet was renewed")
	}
	if err := s.renewDue(time.Now().Add(300 * 24 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	renewed("two thirds of a year")
	if err := RotateCertificates(s.config.DataDir); err != nil {
		t.Fatal(err)
	}
	renewed("certs rotate")

	ends := s.authorities.Clients.NotAfter()
	for days, want := range map[int]int{31: 0, 29: 3} {
		soon, err := s.endingSoon(ends.Add(time.Duration(-days) * 24 * time.Hour))
		if err != nil || len(soon) != want {
			t.Errorf("%d days before the authorities end: %v, %v", days, soon, err)
		}
	}
	file := filepath.Join(s.config.DataDir, "pki", "serving.pem") // as if it were for an etcd
	if soon, err := s.endingSoon(onDisk().NotAfter.Add(-time.Hour), "", file); err != nil || len(soon) != 1 || soon[0].file != file {
		t.Errorf("an hour before a certificate for etcd ends: %v, %v", soon, err)
	}
}
