package check

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// ask runs a check of this machine's own, with settings such as text=ok.
func ask(t *testing.T, addr, text string, settings ...string) Result {
	t.Helper()
	spec, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range append([]string{"interval=300ms"}, settings...) {
		name, value, _ := strings.Cut(setting, "=")
		for _, s := range Settings() {
			if s.Name == name {
				if err := s.Set(&spec, value); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	r, err := Probe(t.Context(), Target{Addr: netip.MustParseAddrPort(addr), Spec: &spec, Own: true})
	if err != nil {
		t.Fatalf("%s of %s: %v", text, addr, err)
	}
	return r
}

func expect(t *testing.T, got Result, outcome Outcome, reason string) {
	t.Helper()
	if got.Outcome != outcome || !strings.Contains(got.Reason, reason) {
		t.Errorf("got %s (%s), want %s (%s)", got.Outcome, got.Reason, outcome, reason)
	}
}

// loopbacks are the addresses of both families that tests listen at.
var loopbacks = []string{"127.0.0.1:0", "[::1]:0"}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestHTTP(t *testing.T) {
	for _, address := range loopbacks {
		var elsewhere atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
		defer other.Close()
		mux := http.NewServeMux()
		mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
				t.Error("a check sent credentials")
			}
			fmt.Fprint(w, "all is well at "+r.Host)
		})
		mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
		mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		})
		server := &httptest.Server{Listener: listen(t, address), Config: &http.Server{Handler: mux}}
		server.Start()
		defer server.Close()
		at := server.Listener.Addr().String()
		expect(t, ask(t, at, "http:/ok"), Passed, "")
		expect(t, ask(t, at, "http:/ok", "text=all is well"), Passed, "")
		expect(t, ask(t, at, "http:/ok", "host=shop.example", "text=at shop.example"), Passed, "")
		expect(t, ask(t, at, "http:/ok", "text=secret"), Wrong, "expected text")
		expect(t, ask(t, at, "http:/ok", "status=204"), Wrong, "status 200")
		expect(t, ask(t, at, "http:/broken"), Wrong, "status 503")
		expect(t, ask(t, at, "http:/broken", "status=500-599"), Passed, "")
		expect(t, ask(t, at, "http:/away"), Passed, "")
		expect(t, ask(t, at, "http:/slow"), Silent, "")
		expect(t, ask(t, at, "https:/ok"), Wrong, "")
		if elsewhere.Load() > 0 {
			t.Error("a redirect to another host was followed")
		}
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	at := server.Listener.Addr().String()
	expect(t, ask(t, at, "tls"), Passed, "")
	expect(t, ask(t, at, "https:/", "text=hello"), Passed, "")
	expect(t, ask(t, at, "https:/", "status=404"), Wrong, "status 200")
	expect(t, ask(t, at, "tcp"), Passed, "")
}

func TestNobodyListens(t *testing.T) {
	for _, address := range loopbacks {
		l := listen(t, address)
		at := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"tcp", "http:/", "tls", "grpc", "udp:x"} {
			expect(t, ask(t, at, text), Refused, "refused")
		}
	}
}

// TestNoise: what servers of other protocols say is an answer, and a wrong one.
func TestNoise(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(strings.Repeat("220 mail\xff\x00 ", 1000) + "\r\n"))
			_ = c.Close()
		}
	}()
	for _, text := range []string{"http:/", "https:/", "tls", "grpc"} {
		if got := ask(t, l.Addr().String(), text); got.Outcome == Passed || strings.Contains(got.Reason, "mail") {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestUDP(t *testing.T) {
	for _, address := range loopbacks {
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		go func() {
			buffer := make([]byte, 100)
			for {
				n, from, err := c.ReadFrom(buffer)
				if err != nil {
					return
				}
				if string(buffer[:n]) == "ping" {
					_, _ = c.WriteTo([]byte("pong"), from)
				}
			}
		}()
		at := c.LocalAddr().String()
		expect(t, ask(t, at, "udp:ping"), Passed, "")
		expect(t, ask(t, at, "udp:ping", "text=pong"), Passed, "")
		expect(t, ask(t, at, "udp:ping", "text=other"), Wrong, "")
		expect(t, ask(t, at, "udp:quiet"), Silent, "")
	}
}

func TestICMP(t *testing.T) {
	for _, at := range []string{"127.0.0.1:1", "[::1]:1"} {
		expect(t, ask(t, at, "icmp"), Passed, "")
	}
}

func TestGRPC(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	server, state := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	state.SetServingStatus("cart", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	at := l.Addr().String()
	expect(t, ask(t, at, "grpc", "interval=5s", "timeout=5s"), Passed, "")
	expect(t, ask(t, at, "grpc:cart", "interval=5s", "timeout=5s"), Wrong, "NOT_SERVING")
	expect(t, ask(t, at, "grpc:none", "interval=5s", "timeout=5s"), Wrong, "NotFound")
}

func TestExec(t *testing.T) {
	expect(t, ask(t, "127.0.0.1:1", "exec:true"), Passed, "")
	expect(t, ask(t, "127.0.0.1:1", "exec:false"), Wrong, "exit code 1")
	expect(t, ask(t, "127.0.0.1:1", "exec:/none/such"), Wrong, "no such file")
	expect(t, ask(t, "127.0.0.1:1", "exec:sleep 10"), Silent, "")
}

// TestOthersMayNotReachLocalServices: a check that somebody wrote into the API
// reaches no loopback or link-local address and runs no command.
func TestOthersMayNotReachLocalServices(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	reached := make(chan struct{}, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached <- struct{}{}
			_ = c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	for _, text := range []string{"http:/", "tcp", "https:/", "tls", "grpc", "udp:x", "icmp", "exec:true"} {
		spec, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{"127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::1", "fe80::1", "fe80::1%lo", "169.254.169.254", "0.0.0.0", "::", "64:ff9b::127.0.0.1", "2002:7f00:1::1"} {
			at := netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port))
			if r, err := Probe(context.Background(), Target{Addr: at, Spec: &spec}); err == nil {
				t.Errorf("%s of %s: %+v", text, at, r)
			}
		}
	}
	if len(reached) > 0 {
		t.Error("a local service was reached")
	}
}
