package native

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// four is an engine with four endpoints, some of which answer with a status of their own.
type four struct {
	*Engine
	at      string
	asked   [4]atomic.Int64
	answers [4]atomic.Int64 // status; 0 breaks the connection off
}

func newFour(t *testing.T, eject *model.Eject, p model.Pool) *four {
	f := &four{}
	p.Name, p.Eject = "web", eject
	for i := range 4 {
		f.answers[i].Store(http.StatusOK)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			f.asked[i].Add(1)
			status := f.answers[i].Load()
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(int(status))
			fmt.Fprint(w, i)
		}))
		t.Cleanup(s.Close)
		p.Endpoints = append(p.Endpoints, model.Endpoint{Addr: netip.MustParseAddrPort(s.Listener.Addr().String()), Weight: 1})
	}
	f.Engine = withRule(t, &model.Action{Backends: to("web")}, map[string]*model.Pool{"web": &p})
	f.at = f.Sockets()["s"].String()
	return f
}

// ask asks many times, some at once, and returns how many answers were no good.
func (f *four) ask(t *testing.T, method string, n int) (failed int64) {
	t.Helper()
	var bad atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range n / 4 {
				q, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.at+"/", strings.NewReader(map[string]string{http.MethodPost: "body"}[method]))
				if err != nil {
					t.Error(err)
					return
				}
				response, err := http.DefaultClient.Do(q)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
					bad.Add(1)
				}
				_ = response.Body.Close()
			}
		})
	}
	all.Wait()
	return bad.Load()
}

// TestEject: one of four endpoints fails. What is on the way to it fails, and nothing else.
func TestEject(t *testing.T) {
	const inRow = 3
	for name, status := range map[string]int64{"answers 500": 500, "answers 503": 503, "breaks off": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFour(t, &model.Eject{Errors: inRow, For: 20 * time.Millisecond, Most: 40 * time.Millisecond}, model.Pool{})
			if failed := f.ask(t, http.MethodGet, 40); failed > 0 {
				t.Fatalf("%d of 40 requests to endpoints that are well failed", failed)
			}
			f.answers[2].Store(status)
			if failed := f.ask(t, http.MethodPost, 200); failed < 1 || failed > 50 {
				t.Errorf("%d of 200 failed", failed)
			}
			before := f.asked[2].Load()
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) || f.asked[2].Load() == before; {
				if failed := f.ask(t, http.MethodGet, 20); failed > 0 {
					t.Fatalf("%d of 20 requests that do no harm twice failed while the endpoint was tried", failed)
				}
			}
			f.answers[2].Store(http.StatusOK)
			healed := f.asked[2].Load()
			for end := time.Now().Add(time.Minute); f.asked[2].Load() < healed+20; {
				if failed := f.ask(t, http.MethodGet, 20); failed > 0 || time.Now().After(end) {
					t.Fatalf("the endpoint that is well again was asked %d times; %d requests failed", f.asked[2].Load()-healed, failed)
				}
			}
		})
	}
}

// TestEjectStays: an endpoint that is out gets nothing, and clients that stay with
// another one aren't sent to try it.
func TestEjectStays(t *testing.T) {
	f := newFour(t, &model.Eject{Errors: 2, For: time.Hour, Most: time.Hour}, model.Pool{})
	f.answers[0].Store(500)
	f.ask(t, http.MethodPost, 40)
	before := f.asked[0].Load()
	if failed := f.ask(t, http.MethodPost, 200); failed > 0 || f.asked[0].Load() != before {
		t.Errorf("%d requests failed, %d went to the endpoint that is out", failed, f.asked[0].Load()-before)
	}
}

// TestEjectHalf: half of the endpoints get requests in any case.
func TestEjectHalf(t *testing.T) {
	f := newFour(t, &model.Eject{Errors: 1, For: time.Hour, Most: time.Hour}, model.Pool{})
	for i := range 3 {
		f.answers[i].Store(503)
	}
	f.ask(t, http.MethodPost, 80)
	var before [4]int64
	for i := range 4 {
		before[i] = f.asked[i].Load()
	}
	f.ask(t, http.MethodPost, 80)
	serving := 0
	for i := range 4 {
		if f.asked[i].Load() > before[i] {
			serving++
		}
	}
	if serving != 2 {
		t.Errorf("%d of 4 endpoints get requests, want 2", serving)
	}
}

// TestStandings: how long an endpoint is out.
func TestStandings(t *testing.T) {
	at := func(i byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 80) }
	p := &model.Pool{Eject: &model.Eject{Errors: 2, Share: 50, For: time.Second, Most: 3 * time.Second}}
	for i := range byte(4) {
		p.Endpoints = append(p.Endpoints, model.Endpoint{Addr: at(i)})
	}
	anywhere := func(netip.AddrPort) bool { return true }
	var s standings
	now := time.Unix(1000, 0)
	if out := s.judge(p, at(1), true, now); out != 0 {
		t.Errorf("out after one error: %v", out)
	}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if out := s.judge(p, at(1), true, now); out != want {
			t.Errorf("out for %v, want %v", out, want)
		}
		if list, trial := s.serving(p, true, anywhere, now.Add(want-time.Millisecond)); len(list) != 3 || trial {
			t.Errorf("%d endpoints serve, trial %v", len(list), trial)
		}
		now = now.Add(want + time.Millisecond)
		if list, trial := s.serving(p, false, anywhere, now); len(list) != 3 || trial {
			t.Errorf("a request that does harm tries it: %v", list)
		}
		if list, trial := s.serving(p, true, func(ep netip.AddrPort) bool { return ep != at(1) }, now); len(list) != 3 || trial {
			t.Errorf("a client that stays elsewhere tries it: %v", list)
		}
		if list, trial := s.serving(p, true, anywhere, now); len(list) != 1 || !trial {
			t.Errorf("nobody tries it: %v", list)
		}
		if list, trial := s.serving(p, true, anywhere, now); len(list) != 3 || trial {
			t.Errorf("two try it: %v", list)
		}
	}
	now = now.Add(3 * time.Second)
	s.judge(p, at(1), false, now)
	if list, _ := s.serving(p, true, anywhere, now); len(list) != 4 {
		t.Errorf("%d endpoints serve after it answered", len(list))
	}
	for i := range model.EjectLeast {
		if out := s.judge(p, at(2), i%2 == 1, now); (out > 0) != (i == model.EjectLeast-1) {
			t.Errorf("out for %v after %d requests of which half failed", out, i+1)
		}
	}
}

// TestEjectStream: connections go where there is somebody.
func TestEjectStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := netip.MustParseAddrPort(l.Addr().String())
	_ = l.Close()
	f := newFour(t, nil, model.Pool{})
	s := &socket{engine: f.Engine}
	pool := *f.table.Load().Pools["web"]
	pool.Eject = &model.Eject{Errors: 1, For: time.Hour, Most: time.Hour}
	pool.Endpoints = append(pool.Endpoints, model.Endpoint{Addr: gone, Weight: 1})
	for range 20 {
		c := s.dial(t.Context(), &pool, netip.MustParseAddr("192.0.2.1"), false)
		if c == nil {
			t.Fatal("no connection")
		}
		_ = c.Close()
	}
	if one := f.pickers.of("web").known[gone]; one == nil || !one.isOut {
		t.Errorf("standing %+v, want it out", one)
	}
}
