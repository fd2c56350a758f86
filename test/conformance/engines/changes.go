package engines

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// dead is an address where nobody answers.
func dead(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String())
}

// testNothingSent: a request of which nothing was sent is tried elsewhere; if
// there is nowhere, the answer says so.
func testNothingSent(t *testing.T, r *rig) {
	e := r.endpoint("e", nil)
	p := pool("p", e)
	p.Endpoints = append(p.Endpoints, model.Endpoint{Addr: dead(t), Weight: 1})
	r.apply(table([]*model.Rule{below("/dead", to("dead")), below("/empty", to("empty")), below("/", to("p"))}, p,
		&model.Pool{Name: "dead", Endpoints: p.Endpoints[1:]}, &model.Pool{Name: "empty"}))
	c := client(r.address(), http1)
	for range 10 {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/", strings.NewReader("kept"))
		if err != nil {
			t.Fatal(err)
		}
		if response, body, err := ask(c, q); err != nil || response.StatusCode != http.StatusOK || body != "kept" {
			t.Fatalf("answer %v %q, %v", response, body, err)
		}
	}
	for path, want := range map[string]int{"/dead": http.StatusBadGateway, "/empty": http.StatusServiceUnavailable} {
		if response, _ := r.get(c, "http://h"+path); response.StatusCode != want {
			t.Errorf("%s: answer %d, want %d", path, response.StatusCode, want)
		}
	}
}

// testRetry: answers that the rule names are asked for again, with the body.
func testRetry(t *testing.T, r *rig) {
	var asked atomic.Int64
	e := r.endpoint("e", func(w http.ResponseWriter, q *http.Request) {
		body := make([]byte, 4)
		_, _ = q.Body.Read(body) // an error shows in what comes back
		if asked.Add(1) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(body)
	})
	a := to("p")
	a.Retry = &model.Retry{Codes: []int{503}, Attempts: 2}
	r.apply(table([]*model.Rule{below("/", a)}, pool("p", e)))
	for _, want := range []int{http.StatusOK, http.StatusOK} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/", strings.NewReader("kept"))
		if err != nil {
			t.Fatal(err)
		}
		if response, body, err := ask(client(r.address(), http1), q); err != nil || response.StatusCode != want || body != "kept" {
			t.Fatalf("answer %v %q, %v", response, body, err)
		}
	}
	if asked.Load() != 4 {
		t.Errorf("asked %d times, want 4", asked.Load())
	}
}

// testTimeout: who waits too long is told.
func testTimeout(t *testing.T, r *rig) {
	release := make(chan struct{})
	e := r.endpoint("e", func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-release:
		case <-q.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	whole, one := to("p"), to("p")
	whole.Timeout, one.BackendTimeout = 50*time.Millisecond, 50*time.Millisecond
	r.apply(table([]*model.Rule{below("/whole", whole), below("/one", one)}, pool("p", e)))
	paths := []string{"/one"}
	if r.otherwise["a timeout of the whole"] == "" {
		paths = append(paths, "/whole")
	}
	for _, path := range paths {
		if response, _ := r.get(client(r.address(), http1), "http://h"+path); response.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("%s: answer %d", path, response.StatusCode)
		}
	}
}

// testChanges: no request fails while the table changes.
func testChanges(t *testing.T, r *rig) {
	first, second := r.endpoint("1", nil), r.endpoint("2", nil)
	apply := func(i int) error {
		e := []*endpoint{first, second}[i%2]
		rules := []*model.Rule{below("/", to("p"))}
		for n := range i % 5 {
			rules = append([]*model.Rule{below(fmt.Sprintf("/%d", n), to("p"))}, rules...)
		}
		return r.Apply(table(rules, pool("p", e)))
	}
	if err := apply(0); err != nil {
		t.Fatal(err)
	}
	address := r.address()
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	var failed atomic.Pointer[string]
	var answers atomic.Int64
	for i := range 4 {
		asking.Go(func() {
			c := client(address, http1)
			defer c.CloseIdleConnections()
			for ctx.Err() == nil {
				q, err := http.NewRequest(http.MethodGet, "http://h/", nil)
				if err == nil {
					q.Close = i%2 == 0
					var response *answer
					if response, _, err = ask(c, q); err == nil && response.StatusCode != http.StatusOK {
						err = fmt.Errorf("answer %d", response.StatusCode)
					}
				}
				if err != nil {
					text := err.Error()
					failed.Store(&text)
					return
				}
				answers.Add(1)
			}
		})
	}
	for i := range 200 {
		if err := apply(i); err != nil {
			t.Error(err)
		}
		for before := answers.Load(); answers.Load() == before && failed.Load() == nil; {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	asking.Wait()
	if text := failed.Load(); text != nil {
		t.Error(*text)
	}
}

// testRemoved: a socket that goes lets the request that runs end.
func testRemoved(t *testing.T, r *rig) {
	began, release := make(chan struct{}), make(chan struct{})
	e := r.endpoint("e", func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-release
		_, _ = w.Write([]byte("whole"))
	})
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	address := r.address()
	result := make(chan string, 1)
	go func() {
		q, err := http.NewRequest(http.MethodGet, "http://h/", nil)
		if err != nil {
			result <- err.Error()
			return
		}
		_, body, err := ask(client(address, http1), q)
		if err != nil {
			body = err.Error()
		}
		result <- body
	}()
	<-began
	r.apply(&model.Table{Pools: map[string]*model.Pool{"p": pool("p", e)}})
	if c, err := net.Dial("tcp", address.String()); err == nil {
		_ = c.Close()
		t.Error("the socket still takes connections")
	}
	close(release)
	if got := <-result; got != "whole" {
		t.Errorf("the request that ran got %q", got)
	}
}
