package agent

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
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

func TestServiceHealthAnswersAsKubeProxy(t *testing.T) {
	healthy := true
	s := newServiceHealth(func() bool { return healthy }, slog.New(slog.DiscardHandler))
	port := freePort(t)
	check := func(local, status int, proxyHealthy bool) {
		t.Helper()
		s.want(map[uint16]serviceEndpoints{port: {Service: "default/web", Local: local}})
		if err := s.open(); err != nil {
			t.Fatal(err)
		}
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
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get("http://127.0.0.1:" + strconv.Itoa(int(port)) + "/"); err == nil {
		t.Error("the port still answers after close")
	}
}
