package engines

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
	"golang.org/x/net/http2"

	"github.com/fairway-net/fairway/ingress/model"
)

// way is how requests come: a protocol, over an address family. raw sends a header block
// as it is, with its status as the answer; "" if it is refused without one, nil where
// requests aren't blocks of headers.
type way struct {
	name   string
	tls    bool
	bind   netip.AddrPort
	client *http.Client
	raw    func(t *testing.T, fields []field) string
}

const wayHost = "a.example.com"

// testWays: what passes is the same by every protocol and both address families. What one
// of them lets by, the others would be no protection from.
func testWays(t *testing.T, r *rig) { r.overWays(t, false) }

func testWays3(t *testing.T, r *rig, bind netip.AddrPort) { r.overWays(t, true, bind) }

// overWays runs all cases by all protocols, or by HTTP/3.
func (r *rig) overWays(t *testing.T, http3 bool, binds ...netip.AddrPort) {
	e := r.endpoint("e", nil)
	if len(binds) == 0 {
		binds = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("[::1]:0")}
	}
	for _, bind := range binds {
		for _, secured := range []bool{false, true} {
			if http3 && !secured {
				continue
			}
			table, roots := wayTable(t, bind, secured, http3, pool("p", e))
			r.apply(table)
			address, config := r.address(), &tls.Config{RootCAs: roots, ServerName: wayHost}
			ways := []way{{name: "HTTP/1.1", client: client(address, http1)}, {name: "HTTP/2", client: client(address, h2c), raw: raw2(address, nil)}}
			switch {
			case http3:
				ways = []way{{name: "HTTP/3", client: client3(t, address, roots, wayHost), raw: raw3(address, config)}}
			case secured:
				over2 := client(address, func(p *http.Protocols) { p.SetHTTP2(true) })
				ways = []way{{name: "HTTP/1.1 over TLS", client: client(address, http1)}, {name: "HTTP/2 over TLS", client: over2, raw: raw2(address, config)}}
			}
			for _, w := range ways {
				if transport, ok := w.client.Transport.(*http.Transport); ok {
					transport.TLSClientConfig = config.Clone()
					t.Cleanup(transport.CloseIdleConnections)
				}
				w.bind, w.tls = bind, secured
				t.Run(w.name+" "+bind.Addr().String(), func(t *testing.T) { r.byWay(t, &w, e) })
			}
		}
	}
}

func (r *rig) byWay(t *testing.T, w *way, e *endpoint) {
	r.wayPaths(t, w)
	r.wayHeaders(t, w)
	r.wayFraming(t, w)
	r.wayLeave(t, w)
	r.wayRefused(t, w, e)
}

// wayTable has a socket in the clear or over TLS.
func wayTable(t *testing.T, bind netip.AddrPort, secured, http3 bool, p *model.Pool) (*model.Table, *x509.CertPool) {
	named := func(path string, a *model.Action) *model.Rule {
		a.Response.Set = append(a.Response.Set, model.Header{Name: "Rule", Value: path})
		return below(path, a)
	}
	framed, script, https := to(p.Name), to(p.Name), to(p.Name)
	for _, h := range []model.Header{{Name: "Content-Length", Value: "5"}, {Name: "Transfer-Encoding", Value: "chunked"}, {Name: "Connection", Value: "close"}, {Name: "Upgrade", Value: "websocket"}} {
		framed.Response.Set, framed.Request.Set = append(framed.Response.Set, h), append(framed.Request.Set, h)
	}
	script.BasicAuth = &model.BasicAuth{Realm: "r", Users: map[string]string{"ada": "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="}}
	script.CORS = &model.CORS{Origins: []string{"*"}, Methods: []string{"GET"}, Credentials: true, Literal: true}
	https.RequireHTTPS = http.StatusPermanentRedirect
	rules := []*model.Rule{named("/admin", to(p.Name)), named("/framed", framed), named("/script", script), named("/https", https), named("/", to(p.Name))}
	roots := x509.NewCertPool()
	l := &model.Listener{Name: "ns/gw/l"}
	socket := &model.Socket{Name: "ns/gw:80", Port: 80, TLS: secured, HTTP3: http3, Listeners: []*model.Listener{l}}
	host := &model.Host{Rules: rules}
	if secured {
		socket.Port, l.Hostname, l.Certificates, host.Hostname = 443, wayHost, []*tls.Certificate{certificate(t, roots, wayHost)}, wayHost
	}
	l.SetHosts([]*model.Host{host})
	table := tableOf(socket, p)
	socket.Bind = bind
	return table, roots
}

// ask sends a request by a way.
func (w *way) ask(t *testing.T, method, path string, header http.Header, body string) (*answer, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://"+wayHost+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		q.Body = nil
	}
	if w.tls {
		q.URL.Scheme = "https"
	}
	if q.URL.Path, err = url.PathUnescape(path); err != nil {
		t.Fatal(err)
	}
	q.URL.RawPath = path
	if header != nil {
		q.Header = header
	}
	response, got, err := ask(w.client, q)
	if err != nil {
		t.Fatal(err)
	}
	return response, got
}

// wayPaths: a path that only looks otherwise goes by the same rule.
func (r *rig) wayPaths(t *testing.T, w *way) {
	for path, want := range map[string]string{
		"/admin": "/admin", "/%61dmin": "/admin", "//admin": "/admin", "/x/../admin": "/admin", "/x/%2e%2E/admin": "/admin", "/x//..//admin/": "/admin", "/x/..%2fadmin": "", "/x/..%5Cadmin": "",
		"/administer": "/", "/x%2Fy": "/",
	} {
		response, _ := w.ask(t, http.MethodGet, path, nil, "")
		if got := response.Header.Get("Rule"); got != want || (want == "") != (response.StatusCode == http.StatusBadRequest) {
			t.Errorf("%s: answer %d by rule %q, want %q", path, response.StatusCode, got, want)
		}
	}
}

// wayHeaders: what only a proxy may say is the gateway's to say.
func (r *rig) wayHeaders(t *testing.T, w *way) {
	lies := http.Header{"Good": {"1"}}
	for _, name := range []string{"X-Real-Ip", "X_real_ip", "X_forwarded_for", "X.forwarded.proto", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Original-Url", "X-Rewrite-Url", "True-Client-Ip", "Forwarded"} {
		lies[name] = []string{"untrue"}
	}
	response, _ := w.ask(t, http.MethodGet, "/", lies, "")
	for name, values := range response.Header {
		if strings.Contains(fmt.Sprint(values), "untrue") {
			t.Errorf("%s reaches the endpoint", name)
		}
	}
	from := w.bind.Addr().String()
	proto := "http"
	if w.tls {
		proto = "https"
	}
	for name, want := range map[string]string{"Good": "1", "X-Real-Ip": from, "X-Forwarded-For": from, "X-Forwarded-Host": wayHost, "X-Forwarded-Proto": proto} {
		if got := response.Header.Get("Asked-" + name); got != want {
			t.Errorf("the endpoint gets %s: %q, want %q", name, got, want)
		}
	}
}

// wayFraming: no rule says where a message ends.
func (r *rig) wayFraming(t *testing.T, w *way) {
	for _, body := range []string{"", strings.Repeat("x", 1000)} {
		response, got := w.ask(t, http.MethodPost, "/framed", nil, body)
		if response.StatusCode != http.StatusOK || got != body || response.Header.Get("Asked-Upgrade") != "" {
			t.Errorf("a body of %d bytes comes back as %d: %+v", len(body), len(got), response)
		}
	}
}

// wayLeave: browsers ask before they say who their user is, and who comes in the clear is
// sent to TLS, whatever a client says of that itself.
func (r *rig) wayLeave(t *testing.T, w *way) {
	for method, want := range map[string]int{http.MethodOptions: http.StatusNoContent, http.MethodGet: http.StatusUnauthorized} {
		response, _ := w.ask(t, method, "/script", http.Header{"Origin": {"https://b.example"}, "Access-Control-Request-Method": {"GET"}}, "")
		if response.StatusCode != want || response.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: answer %+v, want %d for any origin", method, response, want)
		}
	}
	want := http.StatusPermanentRedirect
	if w.tls {
		want = http.StatusOK
	}
	if response, _ := w.ask(t, http.MethodGet, "/https", http.Header{"X-Forwarded-Proto": {"https"}}, ""); response.StatusCode != want {
		t.Errorf("/https: answer %d, want %d", response.StatusCode, want)
	}
}

// wayRefused: two hosts, and tunnels.
func (r *rig) wayRefused(t *testing.T, w *way, e *endpoint) {
	if w.raw == nil {
		return
	}
	scheme := "http"
	if w.tls {
		scheme = "https"
	}
	request := func(method string, more ...field) []field {
		return append([]field{{":method", method}, {":scheme", scheme}, {":path", "/"}, {":authority", wayHost}}, more...)
	}
	if got := w.raw(t, request("GET", field{"host", wayHost})); got != "200" {
		t.Errorf("a host that is the authority: answer %q", got)
	}
	before := e.asked.Load()
	if got := w.raw(t, request("GET", field{"host", "b.example.com"})); (got == "200") != (r.otherwise["two hosts in HTTP/2"] != "") {
		t.Errorf("a host that is another: answer %q", got)
	}
	if r.otherwise["two hosts in HTTP/2"] == "" && e.asked.Load() != before {
		t.Error("a host that is another reaches the endpoint")
	}
	before = e.asked.Load()
	for name, fields := range map[string][]field{
		"CONNECT":                   {{":method", "CONNECT"}, {":authority", wayHost + ":443"}},
		"CONNECT to a host of ours": {{":method", "CONNECT"}, {":authority", wayHost}},
		"CONNECT for datagrams":     request("CONNECT", field{":protocol", "connect-udp"}),
		"an upgrade":                request("GET", field{"connection", "upgrade"}, field{"upgrade", "h2c"}),
		"chunks":                    request("GET", field{"transfer-encoding", "chunked"}),
		"another scheme":            {{":method", "GET"}, {":scheme", "ftp"}, {":path", "/"}, {":authority", wayHost + "/x"}},
	} {
		if got := w.raw(t, fields); strings.HasPrefix(got, "2") {
			t.Errorf("%s: answer %q", name, got)
		}
	}
	if asked := e.asked.Load(); asked != before {
		t.Errorf("%d of what is refused reached the endpoint", asked-before)
	}
}

// raw2 sends header blocks by HTTP/2.
func raw2(to netip.AddrPort, config *tls.Config) func(*testing.T, []field) string {
	return func(t *testing.T, fields []field) string {
		t.Helper()
		c, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		if config != nil {
			config = config.Clone()
			config.NextProtos = []string{"h2"}
			c = tls.Client(c, config)
		}
		f := framer(t, c)
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, fields), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		return statusOf(f)
	}
}

// raw3 sends header blocks by HTTP/3 (RFC 9114, 7.2.2).
func raw3(to netip.AddrPort, config *tls.Config) func(*testing.T, []field) string {
	return func(t *testing.T, fields []field) string {
		t.Helper()
		config := config.Clone()
		config.NextProtos = []string{"h3"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := quic.DialAddr(ctx, to.String(), config, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.CloseWithError(0, "") }() // nothing is sent any more
		stream, err := c.OpenStreamSync(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.SetDeadline(time.Now().Add(time.Minute)) // it is open
		var b bytes.Buffer
		encoder := qpack.NewEncoder(&b)
		for _, one := range fields {
			if err := encoder.WriteField(qpack.HeaderField{Name: one.name, Value: one.value}); err != nil {
				t.Fatal(err)
			}
		}
		const headers = 1 // the type of the frame
		if _, err := stream.Write(append(quicvarint.Append(quicvarint.Append(nil, headers), uint64(b.Len())), b.Bytes()...)); err != nil {
			t.Fatal(err)
		}
		_ = stream.Close() // the answer is read all the same
		return status3(stream)
	}
}

// status3 reads the status of an answer by HTTP/3.
func status3(stream io.Reader) string {
	r := quicvarint.NewReader(stream)
	if kind, err := quicvarint.Read(r); err != nil || kind != 1 {
		return ""
	}
	length, err := quicvarint.Read(r)
	if err != nil || length > 1<<16 {
		return ""
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return ""
	}
	next := qpack.NewDecoder().Decode(text)
	for {
		one, err := next()
		if err != nil {
			return ""
		}
		if one.Name == ":status" {
			return one.Value
		}
	}
}
