package agentlink

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/model"
)

func authorities(t *testing.T) *pki.Authorities {
	t.Helper()
	a, err := pki.OpenAll(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pairOf(t *testing.T, p pki.Pair) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func clientOf(t *testing.T, a *pki.Authorities, user string, groups ...string) tls.Certificate {
	t.Helper()
	p, err := a.Clients.Client(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return pairOf(t, p)
}

// servePort serves an agent's port until the test ends.
func servePort(t *testing.T, identity Identity) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ServePort(ctx, listener, identity, fakeAgent{version: "1"}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// listen serves until the test ends.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func flowTo(at string) nftrace.Flow {
	return nftrace.Flow{Proto: model.TCP, Frontend: netip.MustParseAddrPort(at)}
}
