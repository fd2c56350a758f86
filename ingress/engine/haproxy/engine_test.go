package haproxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// rig is an engine with an endpoint or two.
type rig struct {
	*testing.T
	*Engine
	socket *model.Socket
	pools  map[string]*model.Pool
	rules  []*model.Rule

	challenges *model.Challenges
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, Engine: newEngine(t, Options{}), pools: map[string]*model.Pool{}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.Close(ctx)
	})
	r.socket = &model.Socket{Name: "ns/gw:80", Port: 80, Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	return r
}

func (r *rig) endpoint(name string) model.Endpoint {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, name+" "+q.URL.Path)
	}))
	r.Cleanup(s.Close)
	return model.Endpoint{Addr: netip.MustParseAddrPort(s.Listener.Addr().String()), Weight: 1}
}

func (r *rig) apply() {
	r.Helper()
	l := &model.Listener{Name: "ns/gw/http"}
	l.SetHosts([]*model.Host{{Rules: r.rules}})
	s := *r.socket
	s.Listeners = []*model.Listener{l}
	pools := map[string]*model.Pool{}
	for name, p := range r.pools {
		pools[name] = p
	}
	if err := r.Apply(&model.Table{Sockets: []*model.Socket{&s}, Pools: pools, Challenges: r.challenges}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) ask(path string) string {
	r.Helper()
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.Sockets()["ns/gw:80"].String()+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	response, err := c.Do(q)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, body)
}

func (r *rig) expect(path, want string) {
	r.Helper()
	if got := r.ask(path); got != want {
		r.Errorf("%s: %q, want %q", path, got, want)
	}
}

func rule(path, pool string) *model.Rule {
	return &model.Rule{Match: model.Match{Kind: model.PathPrefix, Path: path}, Action: &model.Action{Backends: []model.Backend{{Pool: pool, Weight: 1}}}}
}

// TestWithoutReload: routes, hosts, edits, endpoints and pools come and go while
// the same haproxy runs.
func TestWithoutReload(t *testing.T) {
	r := newRig(t)
	a, b := r.endpoint("a"), r.endpoint("b")
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{a}}
	r.rules = []*model.Rule{rule("/", "a")}
	r.apply()
	r.expect("/x", "200 a /x")
	r.pools["b"] = &model.Pool{Name: "b", Endpoints: []model.Endpoint{b}}
	r.rules = []*model.Rule{rule("/b", "b"), rule("/", "a")}
	r.apply()
	r.expect("/b/x", "200 b /b/x")
	r.expect("/x", "200 a /x")
	edited := rule("/b", "b")
	edited.Action.Rewrite = &model.Rewrite{Path: &model.PathEdit{Value: "/new"}}
	r.rules[0] = edited
	r.apply()
	r.expect("/b/x", "200 b /new/x")
	r.pools["b"] = &model.Pool{Name: "b", Endpoints: []model.Endpoint{a}} // the endpoint is another
	r.apply()
	r.expect("/b/x", "200 a /new/x")
	r.pools["b"] = &model.Pool{Name: "b"}
	r.apply()
	r.expect("/b/x", "503 Service Unavailable\n")
	r.pools["b"] = &model.Pool{Name: "b", Endpoints: []model.Endpoint{b}}
	r.apply()
	r.expect("/b/x", "200 b /new/x")
	delete(r.pools, "b")
	r.rules = r.rules[1:]
	r.apply()
	r.expect("/b/x", "200 a /b/x")
	r.challenges = &model.Challenges{Tokens: map[string]string{"token": "token.key_a-b", "odd one": "x", "others": "x"}, At: map[string]string{"token": "ns/gw", "others": "ns/g"}}
	r.apply()
	r.expect("/.well-known/acme-challenge/others", "200 a /.well-known/acme-challenge/others")
	r.expect("/.well-known/acme-challenge/token", "200 token.key_a-b")
	r.expect("/.well-known/acme-challenge/other", "200 a /.well-known/acme-challenge/other")
	if n := r.Reloads(); n != 1 {
		t.Errorf("haproxy was started %d times", n)
	}
}

// TestCrash: a haproxy that ends is started again, and no connection is refused.
func TestCrash(t *testing.T) {
	r := newRig(t)
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{r.endpoint("a")}}
	r.rules = []*model.Rule{rule("/", "a")}
	r.apply()
	r.rules = []*model.Rule{rule("/only", "a")}
	r.apply() // what was changed while it ran is there afterwards, too
	for range 3 {
		r.mu.Lock()
		p := r.process
		r.mu.Unlock()
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		r.expect("/only", "200 a /only")
		if got := r.ask("/"); got[:3] != "404" {
			t.Errorf("/: %q", got)
		}
	}
}

// TestRefused: what haproxy refuses isn't served, and what was goes on.
func TestRefused(t *testing.T) {
	r := newRig(t)
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{r.endpoint("a")}}
	r.rules = []*model.Rule{rule("/", "a")}
	r.apply()
	r.program = "/bin/false"
	other := *r.socket
	other.Name, other.Bind = "ns/other:80", netip.MustParseAddrPort("127.0.0.2:0")
	r.socket.Listeners = []*model.Listener{{Name: "l"}}
	if err := r.Apply(&model.Table{Sockets: []*model.Socket{r.socket, &other}}); err == nil {
		t.Error("a configuration that was refused is taken for served")
	}
	r.expect("/x", "200 a /x")
	if _, err := New(Options{Program: "/nowhere"}); !errors.Is(err, ErrMissing) {
		t.Errorf("without haproxy: %v", err)
	}
}

// TestCertificate: a certificate is renewed while the same haproxy runs.
func TestCertificate(t *testing.T) {
	r := newRig(t)
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{r.endpoint("a")}}
	r.socket.TLS = true
	var shown []string
	for serial := range int64(3) {
		l := &model.Listener{Name: "ns/gw/https", Hostname: "h.example", Certificates: []*tls.Certificate{certificate(t, serial+1)}}
		l.SetHosts([]*model.Host{{Hostname: "h.example", Rules: []*model.Rule{rule("/", "a")}}})
		s := *r.socket
		s.Listeners = []*model.Listener{l}
		if err := r.Apply(&model.Table{Sockets: []*model.Socket{&s}, Pools: r.pools}); err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", r.Sockets()["ns/gw:80"].String(), &tls.Config{ServerName: "h.example", InsecureSkipVerify: true}) //nolint:gosec // which one it is is looked at
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, c.ConnectionState().PeerCertificates[0].SerialNumber.String())
		_ = c.Close() // nothing was written
	}
	if got := fmt.Sprint(shown); got != "[1 2 3]" || r.Reloads() != 1 {
		t.Errorf("certificates %s, haproxy was started %d times", got, r.Reloads())
	}
}

func certificate(t *testing.T, serial int64) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"h.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestInherited: the listeners of another process are served, and those that nobody
// asks for are closed.
func TestInherited(t *testing.T) {
	r := newRig(t)
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{r.endpoint("a")}}
	r.rules = []*model.Rule{rule("/", "a")}
	var list []*net.TCPListener
	for range 2 {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, l)
	}
	r.socket.Bind = netip.MustParseAddrPort(list[0].Addr().String())
	r.Inherit(map[netip.AddrPort]*net.TCPListener{r.socket.Bind: list[0], netip.MustParseAddrPort(list[1].Addr().String()): list[1]})
	r.apply()
	r.expect("/x", "200 a /x")
	if _, err := net.Dial("tcp", list[1].Addr().String()); err == nil {
		t.Error("a listener that nobody asks for takes connections")
	}
	if r.Listeners()[r.socket.Bind] != list[0] {
		t.Error("the listener is another one")
	}
}

// TestCost: a change is one message to haproxy, at 5,000 routes as at 50.
func TestCost(t *testing.T) {
	for _, routes := range []int{50, 5000} {
		t.Run(fmt.Sprint(routes), func(t *testing.T) { testCost(t, routes) })
	}
}

func testCost(t *testing.T, routes int) {
	r := newRig(t)
	e := r.endpoint("a")
	for i := range routes {
		name := fmt.Sprintf("ns/s%d:80", i)
		r.pools[name] = &model.Pool{Name: name, Endpoints: []model.Endpoint{e}}
		r.rules = append(r.rules, rule(fmt.Sprintf("/%d", i), name))
	}
	r.apply()
	change := func(what string, f func()) {
		t.Helper()
		f()
		r.apply()
		if r.commands != 1 {
			t.Errorf("a route that is %s is %d messages", what, r.commands)
		}
	}
	change("added", func() {
		r.pools["new"] = &model.Pool{Name: "new", Endpoints: []model.Endpoint{e}}
		r.rules = append(r.rules[:len(r.rules):len(r.rules)], rule("/new", "new"))
	})
	r.expect("/new", "200 a /new")
	change("edited", func() {
		edited := rule("/new", "new")
		edited.Action.Rewrite = &model.Rewrite{Path: &model.PathEdit{Full: true, Value: "/other"}}
		r.rules = append(r.rules[:len(r.rules)-1:len(r.rules)-1], edited)
	})
	r.expect("/new", "200 a /other")
	change("moved to another endpoint", func() {
		r.pools["new"] = &model.Pool{Name: "new", Endpoints: []model.Endpoint{r.endpoint("b")}}
	})
	r.expect("/new", "200 b /other")
	change("removed", func() { r.rules = r.rules[:len(r.rules)-1]; delete(r.pools, "new") })
	if n := r.Reloads(); n != 1 {
		t.Errorf("haproxy was started %d times", n)
	}
}

// BenchmarkChange is what a change costs at 5,000 routes: of a route, as compile
// hands it over (all else is shared), and of endpoints.
func BenchmarkChange(b *testing.B) {
	e, err := New(Options{Drain: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close(context.Background()) })
	pools, hosts := map[string]*model.Pool{}, []*model.Host{}
	for i := range 5000 {
		name := fmt.Sprintf("ns/s%d:80", i)
		pools[name] = &model.Pool{Name: name, Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort("127.0.0.1:9"), Weight: 1}}}
		hosts = append(hosts, &model.Host{Hostname: fmt.Sprintf("h%d.example", i), Rules: []*model.Rule{rule("/", name)}})
	}
	l := &model.Listener{Name: "l"}
	l.SetHosts(hosts)
	s := &model.Socket{Name: "s", Port: 80, Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{l}}
	apply := func() {
		if err := e.Apply(&model.Table{Sockets: []*model.Socket{s}, Pools: pools}); err != nil {
			b.Fatal(err)
		}
	}
	apply()
	b.Run("route", func(b *testing.B) {
		for i := range b.N {
			changed := l.WithHosts(map[string]*model.Host{"h7.example": {Hostname: "h7.example", Rules: []*model.Rule{rule("/", fmt.Sprintf("ns/s%d:80", i%5000))}}})
			s = s.With(map[*model.Listener]*model.Listener{l: changed})
			l = changed
			apply()
		}
	})
	b.Run("endpoints", func(b *testing.B) {
		for i := range b.N {
			pools = maps.Clone(pools)
			pools["ns/s7:80"] = &model.Pool{Name: "ns/s7:80", Endpoints: []model.Endpoint{{Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(9+i%2)), Weight: 1}}}
			apply()
		}
	})
}

// TestIdleOverReload: a connection without a request may bring one more to a haproxy
// that was replaced, and learns from the answer that it is the last.
func TestIdleOverReload(t *testing.T) {
	r := newRig(t)
	r.options.Drain = 3 * time.Second
	r.pools["a"] = &model.Pool{Name: "a", Endpoints: []model.Endpoint{r.endpoint("a")}}
	r.rules = []*model.Rule{rule("/", "a")}
	r.apply()
	c, err := net.Dial("tcp", r.Sockets()["ns/gw:80"].String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	lines := bufio.NewReader(c)
	ask := func() (last bool) {
		t.Helper()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(lines, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close() // all was read
		return response.Close
	}
	if ask() {
		t.Error("the first answer is the last")
	}
	l := &model.Listener{Name: "ns/gw/http"}
	l.SetHosts([]*model.Host{{Rules: r.rules}})
	one, other := *r.socket, model.Socket{Name: "ns/gw:81", Port: 81, Bind: netip.MustParseAddrPort("127.0.0.2:0")} // which takes another haproxy
	one.Listeners = []*model.Listener{l}
	before := r.Reloads()
	if err := r.Apply(&model.Table{Sockets: []*model.Socket{&one, &other}, Pools: r.pools}); err != nil || r.Reloads() == before {
		t.Fatalf("haproxy wasn't replaced: %v", err)
	}
	time.Sleep(time.Second) // the old process ends its connections meanwhile
	if !ask() {
		t.Error("the connection goes on")
	}
}
