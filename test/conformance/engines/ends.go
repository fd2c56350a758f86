package engines

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// testBrokenOff: an endpoint that breaks connections off before it answers, as
// one does that ends, costs no request that is safe to send twice. Others are
// sent once: nobody knows what became of them.
func testBrokenOff(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	ending := r.endpoint("ending", func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.Close()
		}
	})
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e, ending)))
	c := client(r.address(), http1)
	for range 10 {
		if response, _ := r.get(c, "http://h/"); response.StatusCode != http.StatusOK || response.Header.Get("Endpoint") != "e" {
			t.Fatalf("answer %d of %q", response.StatusCode, response.Header.Get("Endpoint"))
		}
	}
	if ending.asked.Load() == 0 {
		t.Error("nobody asked the endpoint that breaks off")
	}
	ok, failed, before := 0, 0, e.asked.Load()
	for range 10 {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/", strings.NewReader("once"))
		if err != nil {
			t.Fatal(err)
		}
		response, _, err := ask(c, q)
		switch {
		case err != nil && r.otherwise["a connection broken off"] != "":
			failed++
		case err != nil:
			t.Fatal(err)
		case response.StatusCode == http.StatusOK:
			ok++
		case response.StatusCode == http.StatusBadGateway:
			failed++
		}
	}
	if ok+failed != 10 || failed == 0 || e.asked.Load()-before != int64(ok) {
		t.Errorf("of 10 requests that must not be sent twice, %d were answered by an endpoint that was asked %d times, and %d were not", ok, e.asked.Load()-before, failed)
	}
}

// testRetryHarm: a rule that asks for other tries doesn't have a request that may do harm
// twice sent twice, unless an answer says that it may; and none at all if it asks for none.
func testRetryHarm(t *testing.T, r *rig) {
	broken := r.endpoint("broken", func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/answer" {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = c.Close()
			}
			return
		}
		w.Header().Set("Connection", "close") // a connection that ends while it is idle is another case
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close() // who connects is refused
	none := &model.Pool{Name: "none", Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(closed.Addr().String()), Weight: 1}}}
	gateway, nginx, off := to("p"), to("p"), to("none")
	gateway.Retry = &model.Retry{Codes: []int{503}, Attempts: 2, Connection: true}
	nginx.Retry = &model.Retry{Codes: []int{503}, Attempts: 2, Connection: true, Late: true, Idempotent: true}
	off.Retry = &model.Retry{Connection: true}
	for name, test := range map[string]struct {
		action       *model.Action
		method, path string
		want         int64
	}{
		"broken off":                {gateway, http.MethodPost, "/broken", 1},
		"broken off, nginx":         {nginx, http.MethodPost, "/broken", 1},
		"answered":                  {gateway, http.MethodPost, "/answer", 3},
		"answered, nginx":           {nginx, http.MethodPost, "/answer", 1},
		"answered, nginx, harmless": {nginx, http.MethodGet, "/answer", 3},
		"broken, nginx, harmless":   {nginx, http.MethodGet, "/broken", 3},
		"refused, and no tries":     {off, http.MethodGet, "/", 0},
	} {
		r.apply(table([]*model.Rule{below("/", test.action)}, pool("p", broken), none))
		before := broken.asked.Load()
		q, err := http.NewRequestWithContext(t.Context(), test.method, "http://h"+test.path, strings.NewReader(map[string]string{http.MethodPost: "once"}[test.method]))
		if err != nil {
			t.Fatal(err)
		}
		if test.method == http.MethodGet {
			q.Body, q.ContentLength = nil, 0
		}
		response, _, err := ask(client(r.address(), http1), q)
		if n := broken.asked.Load() - before; n != test.want {
			t.Errorf("%s: %d requests, want %d (answer %+v, %v)", name, n, test.want, response, err)
		}
	}
}

// testUnheard: an endpoint of HTTP/2 that ends a connection before it has spoken
// has looked at no request, so others may have it, whatever it is.
func testUnheard(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var ended atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ended.Add(1)
			_ = c.Close()
		}
	}()
	p := pool("p", e)
	p.Protocol = model.H2C
	p.Endpoints = append(p.Endpoints, model.Endpoint{Addr: netip.MustParseAddrPort(l.Addr().String()), Weight: 1})
	r.apply(table([]*model.Rule{below("/", to("p"))}, p))
	c := client(r.address(), h2c)
	for range 20 {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/", strings.NewReader("once"))
		if err != nil {
			t.Fatal(err)
		}
		if response, body, err := ask(c, q); err != nil || response.StatusCode != http.StatusOK || body != "once" {
			t.Fatalf("answer %v %q, %v", response, body, err)
		}
	}
	if ended.Load() == 0 {
		t.Error("nobody connected to the endpoint that ends")
	}
}

// testClosed: an engine that is closed takes no connections; one that was upgraded
// goes on until the time is over.
func testClosed(t *testing.T, r *rig) {
	e := r.endpoint("e", upgrade)
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	address := r.address()
	c, lines := r.upgraded(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed := make(chan struct{})
	go func() { defer close(closed); r.Close(ctx) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		other, err := net.Dial("tcp", address.String())
		if err != nil {
			break
		}
		_ = other.Close()
		if time.Now().After(deadline) {
			t.Fatal("the socket still takes connections")
		}
	}
	for range 3 {
		if _, err := fmt.Fprintln(c, "line"); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); err != nil || got != "line\n" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	select {
	case <-closed:
		t.Error("the engine has ended with a connection in use")
	default:
	}
	cancel()
	<-closed
	if _, err := lines.ReadString('\n'); err == nil {
		t.Error("the connection goes on though the time is over")
	}
}
