package engines

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

// testIdentity: endpoints get what a client's certificate says, and nothing that clients
// say of it.
func testIdentity(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	roots, clients := x509.NewCertPool(), x509.NewCertPool()
	pair := certificate(t, clients, "client.example")
	l := &model.Listener{Name: "ns/gw/tls", Hostname: "h", Certificates: []*tls.Certificate{certificate(t, roots, "h")}}
	l.Clients = &model.ClientValidation{Roots: clients, Authorities: []*x509.Certificate{pair.Leaf}}
	whole, names, chosen := to("p"), to("p"), to("p")
	whole.Identity, names.Identity = &model.Identity{Whole: true}, &model.Identity{}
	chosen.Identity = &model.Identity{Subject: regexp.MustCompile("O=Nobody")}
	l.SetHosts([]*model.Host{{Hostname: "h", Rules: []*model.Rule{below("/whole", whole), below("/chosen", chosen), below("/", names)}}})
	r.apply(tableOf(&model.Socket{Name: "ns/gw:443", Port: 443, TLS: true, Listeners: []*model.Listener{l}}, pool("p", e)))
	c := client(r.address(), http1)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "h", Certificates: []tls.Certificate{*pair}}
	asked := func(path string) *answer {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://h"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ssl-client-verify", "SSL_Client_Subject_DN", "ssl-client-cert", "ssl.client.other"} {
			q.Header.Set(name, "forged")
		}
		response, _, err := ask(c, q)
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range response.Header {
			if strings.Contains(strings.Join(values, " "), "forged") {
				t.Errorf("%s: %s reaches the endpoint", path, name)
			}
		}
		return response
	}
	for path, isWhole := range map[string]bool{"/": false, "/whole": true} {
		h := asked(path).Header
		text, err := url.QueryUnescape(h.Get("Asked-Ssl-Client-Cert"))
		block, _ := pem.Decode([]byte(text))
		if h.Get("Asked-Ssl-Client-Verify") != "SUCCESS" || h.Get("Asked-Ssl-Client-Subject-Dn") != "CN=client.example,O=Fairway" || h.Get("Asked-Ssl-Client-Issuer-Dn") != "CN=client.example,O=Fairway" ||
			err != nil || (block != nil && string(block.Bytes) == string(pair.Leaf.Raw)) != isWhole {
			t.Errorf("%s: the endpoint gets %v", path, h)
		}
	}
	want := http.StatusForbidden
	if r.otherwise["names of clients' certificates"] != "" {
		want = http.StatusInternalServerError
	}
	if got := asked("/chosen").StatusCode; got != want {
		t.Errorf("a certificate of another name: answer %d, want %d", got, want)
	}
}
