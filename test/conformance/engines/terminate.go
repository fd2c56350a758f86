package engines

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// testTerminate: TLS ends here and what is in it goes on as bytes: in TLS again
// where endpoints have it, and never plainly to one that can't show who it is.
func testTerminate(t *testing.T, r *rig) {
	roots, theirs := x509.NewCertPool(), x509.NewCertPool()
	authority := certificate(t, theirs, "mq.internal")
	inner, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*authority}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inner.Close() })
	go func() {
		for {
			c, err := inner.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	endpoints := []model.Endpoint{{Addr: netip.MustParseAddrPort(inner.Addr().String()), Weight: 1}}
	s := &model.Socket{Name: "ns/gw:443", Port: 443, TLS: true}
	for _, name := range []string{"known", "unknown", "invalid"} {
		l := &model.Listener{Name: "ns/gw/" + name, Hostname: name, Mode: model.Terminate, Certificates: []*tls.Certificate{certificate(t, roots, name)}}
		l.SetHosts([]*model.Host{{Hostname: name, Rules: []*model.Rule{below("/", to(name))}}})
		s.Listeners = append(s.Listeners, l)
	}
	r.apply(tableOf(s,
		&model.Pool{Name: "known", Endpoints: endpoints, TLS: &model.BackendTLS{Key: "known", ServerName: "mq.internal", Roots: theirs, Authorities: []*x509.Certificate{authority.Leaf}}},
		&model.Pool{Name: "unknown", Endpoints: endpoints, TLS: &model.BackendTLS{Key: "unknown", ServerName: "other.internal", Roots: theirs, Authorities: []*x509.Certificate{authority.Leaf}}},
		&model.Pool{Name: "invalid", Endpoints: endpoints, Invalid: "no authority"},
	))
	for name, want := range map[string]string{"known": "hello", "unknown": "", "invalid": ""} {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", r.address().String(), &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "hello") // it may be closed already
		_ = c.CloseWrite()
		got, _ := io.ReadAll(c) // nothing, of one that is closed
		_ = c.Close()
		if string(got) != want {
			t.Errorf("%s: %q comes back, want %q", name, got, want)
		}
	}
}
