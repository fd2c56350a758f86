package healthports

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// TestHealthPortsAreWhereNodePortsAre: at the addresses of node ports, and at no others;
// when these change, so do the ports.
func TestHealthPortsAreWhereNodePortsAre(t *testing.T) {
	s := New(func() bool { return true }, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	port := freePort(t)
	answers := func(host string) bool {
		resp, err := http.Get("http://" + net.JoinHostPort(host, strconv.Itoa(int(port))) + "/")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}
	s.Want(map[uint16]Answer{port: {Service: "default/web", Local: 1}})
	for _, c := range []struct {
		addrs      []netip.Addr
		one, other bool
	}{
		{[]netip.Addr{netip.MustParseAddr("127.0.0.1")}, true, false},
		{[]netip.Addr{netip.MustParseAddr("127.0.0.2")}, false, true},
		{[]netip.Addr{}, false, false},
		{nil, true, true},
	} {
		s.At(c.addrs)
		s.Open()
		if one, other := answers("127.0.0.1"), answers("127.0.0.2"); one != c.one || other != c.other {
			t.Errorf("at %v: 127.0.0.1 answers: %t, 127.0.0.2: %t", c.addrs, one, other)
		}
	}
}

// TestHealthPortThatIsTaken is reported once, not tried with each sync, and opened
// without another one when it is free.
func TestHealthPortThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	s := New(func() bool { return true }, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	var reports []string
	report := func(service, message string) { reports = append(reports, service+": "+message) }
	s.Report.Store(&report)
	at := listenAt{netip.MustParseAddr("127.0.0.1"), port}
	s.At([]netip.Addr{at.addr})
	s.Want(map[uint16]Answer{port: {Service: "default/web", Local: 1}})
	s.Open()
	first := s.failed[at]
	if first == nil {
		t.Fatal("a port of somebody else's is open")
	}
	due := first.at
	for range 5 {
		s.Open()
	}
	if len(reports) != 1 || !strings.HasPrefix(reports[0], "default/web: ") {
		t.Errorf("reported %q, want one report", reports)
	}
	s.mu.Lock()
	if !first.at.Equal(due) && time.Now().Before(due) {
		t.Error("tried again with each sync")
	}
	s.mu.Unlock()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "open by itself", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.servers[at] != nil && len(s.failed) == 0
	})
}

// TestHealthPortsEndIdleConnections: who says nothing doesn't hold a connection for ever.
func TestHealthPortsEndIdleConnections(t *testing.T) {
	s := New(func() bool { return true }, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	port := freePort(t)
	s.Want(map[uint16]Answer{port: {Service: "default/web"}})
	s.Open()
	for at, server := range s.servers {
		if server.IdleTimeout == 0 || server.ReadTimeout == 0 || server.WriteTimeout == 0 || server.ReadHeaderTimeout == 0 {
			t.Errorf("%s: no time limit on some of what clients do", at)
		}
	}
}

func TestServiceHealthAnswersAsKubeProxy(t *testing.T) {
	healthy := true
	s := New(func() bool { return healthy }, slog.New(slog.DiscardHandler))
	port := freePort(t)
	check := func(local, status int, proxyHealthy bool) {
		t.Helper()
		s.Want(map[uint16]Answer{port: {Service: "default/web", Local: local}})
		s.Open()
		resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(int(port)) + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		want := `"localEndpoints":` + strconv.Itoa(local) + `,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":` + strconv.FormatBool(proxyHealthy)
		if resp.StatusCode != status || !strings.Contains(string(body), want) ||
			resp.Header.Get("X-Load-Balancing-Endpoint-Weight") != strconv.Itoa(local) {
			t.Errorf("status %d, weight %q, body %s; want %d and %s", resp.StatusCode,
				resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), body, status, want)
		}
	}
	check(2, 200, true)
	check(0, 503, true)
	healthy = false
	check(1, 503, false)
	s.Close()
	if _, err := http.Get("http://127.0.0.1:" + strconv.Itoa(int(port)) + "/"); err == nil {
		t.Error("the port still answers after close")
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := range wait.Tries(time.Minute) {
		if is() {
			break
		}
		if late {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}
