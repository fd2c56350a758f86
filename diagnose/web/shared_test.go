package web

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

// TestShared: the link of a page that is shared lets in any browser that has it, at the address
// that it is shared at, until another link is made.
func TestShared(t *testing.T) {
	at := netip.MustParseAddr("10.77.0.11")
	g := newGuard(8411, at, time.Now().Add(time.Hour))
	token := g.renew()
	handler := g.protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	ask := func(host, path string, cookies ...*http.Cookie) *http.Response {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host, r.TLS = host, &tls.ConnectionState{}
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result()
	}
	first, second := ask("10.77.0.11:8411", "/?token="+token), ask("10.77.0.11:8411", "/?token="+token)
	if len(first.Cookies()) != 1 || len(second.Cookies()) != 1 || !first.Cookies()[0].Secure {
		t.Fatalf("the link lets in %v and %v", first.Cookies(), second.Cookies())
	}
	for _, c := range []struct {
		what, host, path string
		cookies          []*http.Cookie
		want             int
	}{
		{"without the link", "10.77.0.11:8411", "/", nil, http.StatusForbidden},
		{"a wrong token", "10.77.0.11:8411", "/?token=wrong", nil, http.StatusForbidden},
		{"by the link", "10.77.0.11:8411", "/api/v1/summary", first.Cookies(), http.StatusOK},
		{"at the port that browsers leave out", "10.77.0.11", "/api/v1/summary", first.Cookies(), http.StatusOK},
		{"by a name that leads here", "evil.example.com:8411", "/api/v1/summary", first.Cookies(), http.StatusForbidden},
		{"at another address", "10.77.0.12:8411", "/api/v1/summary", first.Cookies(), http.StatusForbidden},
	} {
		if got := ask(c.host, c.path, c.cookies...); got.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.what, got.Status, c.want)
		}
	}
	again := g.renew()
	if got := ask("10.77.0.11:8411", "/api/v1/summary", first.Cookies()...); got.StatusCode != http.StatusForbidden {
		t.Errorf("after another link was made the first one is good: %s", got.Status)
	}
	if got := ask("10.77.0.11:8411", "/?token="+again); got.StatusCode != http.StatusOK {
		t.Errorf("the other link: %s", got.Status)
	}
	// A suspended machine's timers stand still, and its page is there longer.
	g.until = time.Now().Add(-time.Second).Round(0)
	if got := ask("10.77.0.11:8411", "/?token="+again); got.StatusCode != http.StatusForbidden {
		t.Errorf("when the time is over: %s", got.Status)
	}
}

// TestStreamEnds: who comes by a link that is good no more is told no more, though the stream was
// there before.
func TestStreamEnds(t *testing.T) {
	p := NewShared(Config{}, 8411, netip.MustParseAddr("10.77.0.11"), time.Now().Add(time.Hour))
	r := httptest.NewRequest(http.MethodGet, "/api/v1/events", nil).WithContext(t.Context())
	r.AddCookie(&http.Cookie{Name: p.guard.cookie, Value: p.guard.value()})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.events(httptest.NewRecorder(), r)
	}()
	p.Token()
	wait.Until(t, 10*time.Second, "the stream to end", func() bool {
		p.hub.publish(topicState)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}

// TestIdleConnections: one that says no more is closed, though no browser has shown a token by it.
func TestIdleConnections(t *testing.T) {
	if New(Config{}, 8411).server(t.Context()).IdleTimeout == 0 {
		t.Error("connections of strangers are kept")
	}
}

// TestCertificate: it is the address's, until the link ends.
func TestCertificate(t *testing.T) {
	at, until := netip.MustParseAddr("fd00:77::11"), time.Now().Add(time.Hour)
	c, fingerprint, err := Certificate(at, until)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.VerifyHostname("[fd00:77::11]"); err != nil || parsed.NotAfter.After(until) || len(fingerprint) != 32*3-1 {
		t.Errorf("%v, until %s, fingerprint %s", err, parsed.NotAfter, fingerprint)
	}
}
