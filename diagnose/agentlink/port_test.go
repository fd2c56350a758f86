package agentlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/model"
)

// TestPort: an agent's port answers API servers of its cluster, and nobody else: not
// another node, not an administrator, not a server of another cluster, nobody without a
// certificate.
func TestPort(t *testing.T) {
	ours, theirs := authorities(t), authorities(t)
	node := clientOf(t, ours, "system:node:n1", "system:nodes")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ours.Servers.CertPEM)
	at := servePort(t, func() (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{node}}, nil
	})
	server, err := ours.Servers.Server(APIServerName, nil, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := theirs.Servers.Server(APIServerName, nil, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := ours.Servers.Server("something-else", nil, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		shown []tls.Certificate
		good  bool
	}{
		{"API server", []tls.Certificate{pairOf(t, server)}, true},
		{"API server of another cluster", []tls.Certificate{pairOf(t, stranger)}, false},
		{"another server", []tls.Certificate{pairOf(t, other)}, false},
		{"administrator", []tls.Certificate{clientOf(t, ours, "admin", "system:masters")}, false},
		{"node", []tls.Certificate{node}, false},
		{"client with the server's name", []tls.Certificate{clientOf(t, ours, APIServerName)}, false},
		{"nobody", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen string
			transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: c.shown, InsecureSkipVerify: true, //nolint:gosec // looked at below
				VerifyConnection: func(s tls.ConnectionState) error {
					seen = s.PeerCertificates[0].Subject.CommonName
					return nil
				},
			}}
			status, err := Elsewhere("node n1", transport, "https://"+at).Status(t.Context())
			if (err == nil) != c.good || c.good && status.Node != "n1" {
				t.Errorf("status %+v, error %v", status, err)
			}
			if seen != "system:node:n1" {
				t.Errorf("the agent shows %q", seen)
			}
		})
	}
}

// TestReadingIsGET: what changes nothing is asked with a GET by way of an API server, so
// that the right to read is enough; the rest is not.
func TestReadingIsGET(t *testing.T) {
	var methods []string
	agent := handler(fakeAgent{version: "1"})
	at := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		methods = append(methods, r.Method)
		agent.ServeHTTP(w, r)
	}))
	c := Elsewhere("node n1", http.DefaultTransport, "http://"+at)
	key := model.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Proto: model.TCP}
	if v, err := c.Decide(t.Context(), []model.Key{key}, explain.Source{}); err != nil || len(v.Decisions) != 1 {
		t.Errorf("decide: %+v, %v", v, err)
	}
	if r, err := c.Objects(t.Context(), "default/web"); err != nil || r.Service != "default/web" {
		t.Errorf("objects: %+v, %v", r, err)
	}
	if _, err := c.Objects(t.Context(), "default/nothing"); err == nil || !strings.Contains(err.Error(), "nothing of Service") {
		t.Errorf("objects of nothing: %v", err)
	}
	if list, err := c.Changes(t.Context()); err != nil || len(list) != 1 || list[0].Service != "default/web" || !list[0].Made.IsZero() {
		t.Errorf("changes: %+v, %v", list, err)
	}
	if traffic, err := c.Traffic(t.Context(), "default/web"); err != nil || traffic.Connections != 7 || traffic.NoEndpoint != 2 {
		t.Errorf("traffic: %+v, %v", traffic, err)
	}
	if h, err := c.Host(t.Context()); err != nil || h.Sysctls["net.ipv4.ip_forward"] != "1" {
		t.Errorf("host: %+v, %v", h, err)
	}
	if want := []string{"GET", "GET", "GET", "GET", "GET", "GET"}; !reflect.DeepEqual(methods, want) {
		t.Errorf("methods %v, want %v", methods, want)
	}
	p := Prober{c}
	a := netip.MustParseAddrPort("[fd00::1]:53")
	if got := p.Connect(t.Context(), a); got != "to [fd00::1]:53" {
		t.Errorf("connect: %q", got)
	}
	if got := p.ConnectFrom(t.Context(), netip.MustParseAddr("10.244.0.2"), a); got != "10.244.0.2 to [fd00::1]:53" {
		t.Errorf("connect from: %q", got)
	}
	if got := p.Echo(t.Context(), netip.MustParseAddr("fd00::2"), a.Addr(), true); got != "fd00::2 fd00::1 true" {
		t.Errorf("echo: %q", got)
	}
	if got := p.AtLoopback(a); got != a {
		t.Errorf("at loopback: %s", got)
	}
	if got, err := p.Lookup(t.Context(), netip.Addr{}, a, "udp", "web"); err != nil || len(got) != 1 {
		t.Errorf("lookup: %v, %v", got, err)
	}
	if _, err := p.Lookup(t.Context(), netip.Addr{}, a, "tcp", "web"); err == nil || err.Error() != "no such host web" {
		t.Errorf("lookup that fails: %v", err)
	}
	if _, err := p.Lookup(t.Context(), netip.MustParseAddr("fd00::2"), a, "udp", "web"); !errors.Is(err, doctor.ErrNotThere) {
		t.Errorf("lookup from a pod that isn't there: %v", err)
	}
	if got := p.Resolvers(a.Addr()); len(got) != 1 {
		t.Errorf("resolvers: %v", got)
	}
	if methods[len(methods)-1] != http.MethodPost {
		t.Errorf("a probe is asked by %s", methods[len(methods)-1])
	}
}

// TestTraceEndsWithItsClient: also where the client is killed; bad requests are refused.
func TestTraceEndsWithItsClient(t *testing.T) {
	agent := fakeAgent{version: "1", gone: make(chan struct{})}
	path := filepath.Join(t.TempDir(), SocketName)
	serve(t, path, agent)
	version(t, path, "1")
	if err := New(path).Trace(t.Context(), trace.Request{}, nil); err == nil || !strings.Contains(err.Error(), "flows: not given") {
		t.Errorf("a trace of nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	request := trace.Request{}
	request.Flows = append(request.Flows, flowTo("10.96.0.1:80"))
	var text string
	if err := New(path).Trace(ctx, request, func(l trace.Line) {
		if l.Event != nil {
			text = l.Event.Table + " " + l.Event.Text
			cancel()
		}
	}); err != nil || text != "filter drop" {
		t.Errorf("told %q, error %v", text, err)
	}
	select {
	case <-agent.gone:
	case <-time.After(time.Minute):
		t.Error("the trace goes on without its reader")
	}
}

// TestMissing: of many nodes, those that didn't answer are named, by reason, and nobody
// waits for each of them in turn.
func TestMissing(t *testing.T) {
	never, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer never.Close() //nolint:errcheck // of a test
	well := listen(t, handler(fakeAgent{version: "1"}))
	old := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","message":"nodes \"x\" is forbidden"}`))
	}))
	var list []Found
	for i := range 40 {
		at := []string{well, old, never.Addr().String()}[min(i/17, 2)]
		name := string(rune('a' + i))
		list = append(list, Found{Client: Elsewhere("node "+name, &http.Transport{}, "http://"+at), Node: name})
	}
	list[39] = Found{Node: "z", Err: context.Canceled}
	began := time.Now()
	AskAll(t.Context(), list)
	if took := time.Since(began); took > mostTime+answerTimeout {
		t.Errorf("it took %s", took)
	}
	lines := Missing(list)
	if len(lines) != 4 || lines[0] != "17 of 40 nodes answered" {
		t.Fatalf("lines %q", lines)
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{`: nodes "x" is forbidden`, ": it doesn't answer in time", "z: context canceled"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing of\n%s", want, text)
		}
	}
	if got := Missing(list[:3]); got != nil {
		t.Errorf("all have answered: %q", got)
	}
}
