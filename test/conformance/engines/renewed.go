package engines

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

// testRenewed: what is asked of endpoints' certificates, and what is shown to them, holds
// for the next request, whatever connections there are from before.
func testRenewed(t *testing.T, r *rig) {
	first, second, shown := x509.NewCertPool(), x509.NewCertPool(), x509.NewCertPool()
	theirs, other := certificate(t, first, "web.internal"), certificate(t, second, "web.internal")
	old, renewed := certificate(t, shown, "old.gateway"), certificate(t, shown, "new.gateway")
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if len(q.TLS.PeerCertificates) > 0 {
			w.Header().Set("Shown", q.TLS.PeerCertificates[0].Subject.CommonName)
		}
	}))
	web.TLS = &tls.Config{Certificates: []tls.Certificate{*theirs}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: shown}
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // it is refused, as it should be
	web.StartTLS()
	t.Cleanup(web.Close)
	address := netip.MustParseAddrPort(web.Listener.Addr().String())
	for _, step := range []struct {
		what      string
		roots     *x509.CertPool
		authority *tls.Certificate
		own       *tls.Certificate
		name      string
		want      int
		shown     string
	}{
		{"as it is", first, theirs, old, "web.internal", 200, "old.gateway"},
		{"our certificate is renewed", first, theirs, renewed, "web.internal", 200, "new.gateway"},
		{"another authority", second, other, renewed, "web.internal", 502, ""},
		{"as before", first, theirs, renewed, "web.internal", 200, "new.gateway"},
		{"another name", first, theirs, renewed, "other.internal", 502, ""},
		{"no certificate of ours", first, theirs, nil, "web.internal", 502, ""},
	} {
		p := &model.Pool{Name: "p", Endpoints: []model.Endpoint{{Addr: address, Weight: 1}}, TLS: &model.BackendTLS{ServerName: step.name, Roots: step.roots, Authorities: []*x509.Certificate{step.authority.Leaf}, Certificate: step.own}}
		p.TLS.Sign()
		r.apply(table([]*model.Rule{below("/", to("p"))}, p))
		c := client(r.address(), http1)
		for range map[int]int{200: 2, 502: 1}[step.want] {
			response, _ := r.get(c, "http://h/")
			if response.StatusCode != step.want || response.Header.Get("Shown") != step.shown {
				t.Errorf("%s: answer %d, shown %q; want %d, %q", step.what, response.StatusCode, response.Header.Get("Shown"), step.want, step.shown)
			}
		}
		c.CloseIdleConnections()
	}
}
