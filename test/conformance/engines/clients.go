package engines

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

// testClientsChange: who has a connection from before a listener asked clients for a
// certificate, or for one of another authority, isn't let in by it any more.
func testClientsChange(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	roots, first, second := x509.NewCertPool(), x509.NewCertPool(), x509.NewCertPool()
	server := certificate(t, roots, "h")
	known, others := certificate(t, first, "known.example"), certificate(t, second, "others.example")
	table := func(clients *x509.CertPool, authority *tls.Certificate) *model.Table {
		l := &model.Listener{Name: "ns/gw/tls", Hostname: "h", Certificates: []*tls.Certificate{server}}
		if clients != nil {
			l.Clients = &model.ClientValidation{Roots: clients, Authorities: []*x509.Certificate{authority.Leaf}}
		}
		l.SetHosts([]*model.Host{{Hostname: "h", Rules: []*model.Rule{below("/", to("p"))}}})
		return tableOf(&model.Socket{Name: "ns/gw:443", Port: 443, TLS: true, Listeners: []*model.Listener{l}}, pool("p", e))
	}
	both := x509.NewCertPool()
	both.AddCert(known.Leaf)
	both.AddCert(others.Leaf)
	for name, protocols := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2": func(p *http.Protocols) { p.SetHTTP2(true) }} {
		r.apply(table(nil, nil))
		c := client(r.address(), protocols)
		c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "h"}
		status := func(c *http.Client) int {
			response, _ := r.get(c, "https://h/")
			return response.StatusCode
		}
		if got := status(c); got != http.StatusOK {
			t.Fatalf("%s: answer %d before anybody is asked", name, got)
		}
		r.apply(table(first, known))
		if got := status(c); got != http.StatusMisdirectedRequest {
			t.Errorf("%s: answer %d to a client that showed no certificate", name, got)
		}
		c = client(r.address(), protocols)
		c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "h", Certificates: []tls.Certificate{*known}}
		for _, step := range []struct {
			what      string
			pool      *x509.CertPool
			authority *tls.Certificate
			want      int
		}{{"its authority", first, known, 200}, {"another one, too", both, known, 200}, {"another one", second, others, http.StatusMisdirectedRequest}} {
			r.apply(table(step.pool, step.authority))
			if got := status(c); got != step.want {
				t.Errorf("%s: answer %d to a client where %s is asked for", name, got, step.what)
			}
		}
	}
}
