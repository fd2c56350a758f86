package native

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestProxyFrom: a load balancer's connections are those of whom it says, plain
// and with TLS; from it, none comes without that, and from others none with it.
func TestProxyFrom(t *testing.T) {
	pair := httptest.NewTLSServer(nil)
	defer pair.Close()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}))
	defer endpoint.Close()
	pool := &model.Pool{Name: "p", Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(endpoint.Listener.Addr().String()), Weight: 1}}}
	table := &model.Table{Pools: map[string]*model.Pool{"p": pool}}
	for _, secure := range []bool{false, true} {
		l := &model.Listener{Name: "l", Certificates: []*tls.Certificate{&pair.TLS.Certificates[0]}}
		l.SetHosts([]*model.Host{{Rules: []*model.Rule{{
			Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: &model.Action{Backends: []model.Backend{{Pool: "p", Weight: 1}}},
		}}}})
		address := map[bool]string{false: "127.0.0.1:0", true: "127.0.0.2:0"}[secure]
		table.Sockets = append(table.Sockets, &model.Socket{Name: address, Bind: netip.MustParseAddrPort(address), TLS: secure, Listeners: []*model.Listener{l}})
	}
	e, err := New(Options{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.7/32")}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	if err := e.Apply(table); err != nil {
		t.Fatal(err)
	}
	header := func(version byte, client string) string {
		h := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client)), net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddrPort(client).Addr(), 80)))
		text, err := h.Format()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, address := range e.Sockets() {
		secure := strings.HasPrefix(name, "127.0.0.2")
		for _, test := range []struct{ from, header, want string }{
			{"127.0.0.7", header(1, "192.0.2.1:1234"), "192.0.2.1"},
			{"127.0.0.7", header(2, "192.0.2.2:1234"), "192.0.2.2"},
			{"127.0.0.7", header(2, "[2001:db8::1]:1234"), "2001:db8::1"},
			{"127.0.0.7", "PROXY UNKNOWN\r\n", "127.0.0.7"},
			{"127.0.0.7", "", ""},
			{"127.0.0.8", "", "127.0.0.8"},
			{"127.0.0.8", header(1, "192.0.2.1:1234"), ""},
		} {
			if got := introducedAs(t, address, secure, test.from, test.header); got != test.want {
				t.Errorf("%s from %s with %q: the client is %q, want %q", name, test.from, test.header, got, test.want)
			}
		}
	}
}

// introducedAs is who the endpoint is told to answer; "" if there is no answer.
func introducedAs(t *testing.T, address netip.AddrPort, secure bool, from, header string) string {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	c, err := d.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, header); err != nil {
		t.Fatal(err)
	}
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: "h"}) //nolint:gosec // of the test
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
		return "" // refused in the handshake
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}
