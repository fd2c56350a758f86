package engines

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/fairway-net/fairway/ingress/model"
)

// introducedAt is a listener that takes connections with a PROXY header only.
func introducedAt(t *testing.T) (net.Listener, []model.Endpoint) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	endpoints := []model.Endpoint{{Addr: netip.MustParseAddrPort(l.Addr().String()), Weight: 1}}
	return &proxyproto.Listener{Listener: l, ReadHeaderTimeout: time.Minute}, endpoints
}

// testProxyProtocol: where a pool asks for it, connections to endpoints begin
// with a header that says whose they are: of requests, which don't share them
// then, and of streams, before TLS.
func testProxyProtocol(t *testing.T, r *rig) {
	l, endpoints := introducedAt(t)
	said := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { _, _ = io.WriteString(w, q.RemoteAddr) })
	web := &httptest.Server{Listener: l, Config: &http.Server{Handler: said, ReadHeaderTimeout: time.Minute}}
	web.Start()
	t.Cleanup(web.Close)
	r.apply(table([]*model.Rule{below("/v1", to("v1")), below("/v2", to("v2"))},
		&model.Pool{Name: "v1", Endpoints: endpoints, Proxy: model.ProxyV1}, &model.Pool{Name: "v2", Endpoints: endpoints, Proxy: model.ProxyV2}))
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for _, path := range []string{"/v1", "/v2", "/v1", "/v2"} {
				if err := askedAs(r.address(), path); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
}

// askedAs asks from a port of its own, twice.
func askedAs(address netip.AddrPort, path string) error {
	c, err := net.Dial("tcp", address.String())
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
	}}
	defer client.CloseIdleConnections()
	for range 2 {
		response, err := client.Get("http://h" + path)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // all was read
		if err != nil {
			return err
		}
		if string(body) != c.LocalAddr().String() {
			return fmt.Errorf("%s: the endpoint was told %q (%d), want %s", path, body, response.StatusCode, c.LocalAddr())
		}
	}
	return nil
}

// testProxyStreams is the same for TLS that is passed through.
func testProxyStreams(t *testing.T, r *rig) {
	l, endpoints := introducedAt(t)
	roots := x509.NewCertPool()
	inner := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate(t, roots, "mq.example")}})
	go func() {
		for {
			c, err := inner.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.WriteString(c, c.RemoteAddr().String()); _ = c.Close() }()
		}
	}()
	through := &model.Listener{Name: "ns/gw/through", Hostname: "mq.example", Mode: model.Passthrough}
	through.SetHosts([]*model.Host{{Hostname: "mq.example", Rules: []*model.Rule{below("/", to("p"))}}})
	r.apply(tableOf(&model.Socket{Name: "ns/gw:443", Port: 443, TLS: true, Listeners: []*model.Listener{through}},
		&model.Pool{Name: "p", Endpoints: endpoints, Proxy: model.ProxyV2}))
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", r.address().String(), &tls.Config{RootCAs: roots, ServerName: "mq.example"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(c); err != nil || string(got) != c.LocalAddr().String() {
		t.Errorf("the endpoint was told %q, want %s; %v", got, c.LocalAddr(), err)
	}
}
