package engines

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/netip"
	"testing"

	"github.com/quic-go/quic-go/http3"

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
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://h/", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, _, err := ask(c, q)
			if err != nil { // a connection of its own, for which it has no certificate
				t.Logf("%s: %v", name, err)
				return http.StatusMisdirectedRequest
			}
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

// testClientsOwn: the same where a host had no listener of its own before it asked.
func testClientsOwn(t *testing.T, r *rig) {
	const host = "h.example.com"
	e := r.endpoint("e", nil)
	roots, authorities := x509.NewCertPool(), x509.NewCertPool()
	server, known := certificate(t, roots, host), certificate(t, authorities, "known.example")
	table := func(hostname string, asks ...string) *model.Table {
		s := &model.Socket{Name: "ns/gw:443", Port: 443, TLS: true, OneLabel: true}
		for _, name := range append(asks, hostname) {
			l := &model.Listener{Name: "ns/gw/" + name, Hostname: name, Certificates: []*tls.Certificate{server}}
			if name != hostname {
				l.Clients = &model.ClientValidation{Roots: authorities, Authorities: []*x509.Certificate{known.Leaf}}
			}
			l.SetHosts([]*model.Host{{Hostname: host, Rules: []*model.Rule{below("/", to("p"))}}})
			s.Listeners = append(s.Listeners, l)
		}
		return tableOf(s, pool("p", e))
	}
	for _, before := range []string{"*.example.com", ""} {
		for _, own := range []string{host, "*.example.com"} {
			if own == before {
				continue
			}
			r.apply(table(before))
			c := client(r.address(), http1)
			c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: host}
			for step, want := range []int{http.StatusOK, http.StatusMisdirectedRequest} {
				if step > 0 {
					r.apply(table(before, own))
				}
				q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", nil)
				if err != nil {
					t.Fatal(err)
				}
				got := http.StatusMisdirectedRequest // as by a connection of its own, for which it has no certificate
				if response, _, err := ask(c, q); err == nil {
					got = response.StatusCode
				}
				if got != want {
					t.Errorf("listener %q, then %q: answer %d, want %d", before, own, got, want)
				}
			}
		}
	}
}

// anyHost is a cache of sessions that has the last one for whatever host.
type anyHost struct{ last *tls.ClientSessionState }

func (a *anyHost) Get(string) (*tls.ClientSessionState, bool) { return a.last, a.last != nil }
func (a *anyHost) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		a.last = s
	}
}

// testResumption: a session from before a listener asked clients for a certificate, from
// before it asked for another authority's, or of another listener, lets nobody in.
func testResumption(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	roots, first, second := x509.NewCertPool(), x509.NewCertPool(), x509.NewCertPool()
	server, open := certificate(t, roots, "h"), certificate(t, roots, "open")
	known, others := certificate(t, first, "known.example"), certificate(t, second, "others.example")
	table := func(clients *x509.CertPool, authority *tls.Certificate) *model.Table {
		s := &model.Socket{Name: "ns/gw:443", Port: 443, TLS: true}
		for name, c := range map[string]*tls.Certificate{"h": server, "open": open} {
			l := &model.Listener{Name: "ns/gw/" + name, Hostname: name, Certificates: []*tls.Certificate{c}}
			if clients != nil && name == "h" {
				l.Clients = &model.ClientValidation{Roots: clients, Authorities: []*x509.Certificate{authority.Leaf}}
			}
			l.SetHosts([]*model.Host{{Hostname: name, Rules: []*model.Rule{below("/", to("p"))}}})
			s.Listeners = append(s.Listeners, l)
		}
		return tableOf(s, pool("p", e))
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		var sessions anyHost
		ask := func(host string, certificates ...tls.Certificate) int {
			c := client(r.address(), http1)
			c.Transport.(*http.Transport).DisableKeepAlives = true
			c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: host, ClientSessionCache: &sessions, MinVersion: tls.VersionTLS12, MaxVersion: version, Certificates: certificates}
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, _, err := ask(c, q)
			if err != nil {
				return 0
			}
			return response.StatusCode
		}
		expect := func(what string, got int, isLetIn bool) {
			t.Helper()
			if (got == http.StatusOK) != isLetIn {
				t.Errorf("%s: %s: answer %d", tls.VersionName(version), what, got)
			}
		}
		r.apply(table(nil, nil))
		expect("nobody is asked", ask("h"), true)
		expect("nobody is asked, again", ask("h"), true)
		r.apply(table(first, known))
		expect("a session from before", ask("h"), false)
		expect("another listener", ask("open"), true)
		expect("another listener's session", ask("h"), false)
		expect("a client that is let in", ask("h", *known), true)
		expect("its session alone", ask("h"), false)
		r.apply(table(second, others))
		expect("its session, where another authority counts", ask("h", *known), false)
	}
}

// testClients3 is testClientsChange by HTTP/3.
func testClients3(t *testing.T, r *rig, bind netip.AddrPort) {
	table, roots := secure3(t, bind, []*model.Rule{below("/", to("p"))}, pool("p", r.endpoint("e", nil)))
	asking := func(clients *x509.CertPool) *model.Table {
		socket, next := *table.Sockets[0], *table
		socket.Listeners = nil
		for _, l := range table.Sockets[0].Listeners {
			one := &model.Listener{Name: l.Name, Hostname: l.Hostname, Mode: l.Mode, Certificates: l.Certificates}
			if one.SetHosts(l.Hosts()); l.Mode == model.HTTP {
				one.Clients = &model.ClientValidation{Roots: clients}
			}
			socket.Listeners = append(socket.Listeners, one)
		}
		next.Sockets = []*model.Socket{&socket}
		return &next
	}
	first, second := x509.NewCertPool(), x509.NewCertPool()
	known := certificate(t, first, "known.example")
	certificate(t, second, "others.example")
	expect := func(c *http.Client, what string, want int) {
		t.Helper()
		if response, _ := r.get(c, "https://a.example.com/"); response.StatusCode != want {
			t.Errorf("%s: answer %d, want %d", what, response.StatusCode, want)
		}
	}
	r.apply(table)
	nobody := client3(t, r.address(), roots, "a.example.com")
	expect(nobody, "nobody is asked", http.StatusOK)
	r.apply(asking(first))
	expect(nobody, "a client that showed no certificate", http.StatusMisdirectedRequest)
	somebody := client3(t, r.address(), roots, "a.example.com")
	somebody.Transport.(*http3.Transport).TLSClientConfig.Certificates = []tls.Certificate{*known}
	expect(somebody, "its authority", http.StatusOK)
	r.apply(asking(second))
	expect(somebody, "another authority", http.StatusMisdirectedRequest)
}
