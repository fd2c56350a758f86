package userspace

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/model"
)

var (
	first  = netip.MustParseAddrPort("10.244.1.1:80")
	second = netip.MustParseAddrPort("10.244.1.2:80")
	third  = netip.MustParseAddrPort("10.244.1.3:80")
)

// shares counts who is chosen, for so many clients.
func shares(t *testing.T, b *balancer, p *model.Pool, n int) map[netip.AddrPort]int {
	t.Helper()
	count := map[netip.AddrPort]int{}
	for i := range n {
		backend, ok := b.pick(p, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), nil)
		if !ok {
			t.Fatal("nobody was chosen")
		}
		count[backend]++
	}
	return count
}

func TestWeights(t *testing.T) {
	for _, s := range []model.Scheduler{model.DefaultScheduler, model.WeightedRoundRobin, model.SourceHashing, model.MaglevHashing} {
		t.Run(string(s), func(t *testing.T) {
			p := pool("web", model.TCP, first, second, third)
			p.Scheduler, p.Backends[2].Weight = s, 8
			count := shares(t, newBalancer(model.DefaultScheduler), p, 10000)
			// The deviation of 10 % of 10,000 is 30.
			for backend, want := range map[netip.AddrPort]int{first: 1000, second: 1000, third: 8000} {
				if got := count[backend]; got < want-300 || got > want+300 {
					t.Errorf("%s has %d of 10000, want about %d", backend, got, want)
				}
			}
		})
	}
}

func TestRoundRobin(t *testing.T) {
	count := shares(t, newBalancer(model.RoundRobin), pool("web", model.TCP, first, second, third), 300)
	if want := fmt.Sprint(map[netip.AddrPort]int{first: 100, second: 100, third: 100}); fmt.Sprint(count) != want {
		t.Errorf("%v, want %v", count, want)
	}
}

func TestLeastConnection(t *testing.T) {
	p := pool("web", model.TCP, first, second)
	p.Scheduler = model.LeastConnection
	b := newBalancer(model.DefaultScheduler)
	b.pick(p, addr("10.0.0.1"), nil) // counts are kept of pools in use
	for range 10 {
		b.count(p.ID, first, 1)
	}
	for range 9 {
		backend, _ := b.pick(p, addr("10.0.0.1"), nil)
		if backend != second {
			t.Fatalf("%s was chosen, which has most", backend)
		}
		b.count(p.ID, second, 1)
	}
	for range 5 {
		b.count(p.ID, first, -1)
	}
	if backend, _ := b.pick(p, addr("10.0.0.1"), nil); backend != first {
		t.Errorf("%s was chosen, which has more now", backend)
	}
	p.Scheduler, p.Backends[1].Weight = model.WeightedLeastConnection, 4
	if backend, _ := b.pick(p, addr("10.0.0.1"), nil); backend != second {
		t.Errorf("%s was chosen, which has more for its weight", backend)
	}
}

func TestAffinity(t *testing.T) {
	p := pool("web", model.TCP, first, second, third)
	p.Affinity = time.Minute
	b := newBalancer(model.RoundRobin)
	now := time.Unix(1000, 0)
	b.now = func() time.Time { return now }
	one := addr("10.0.0.1")
	home, _ := b.pick(p, one, nil)
	for range 10 {
		now = now.Add(50 * time.Second) // each connection starts the time again
		if backend, _ := b.pick(p, one, nil); backend != home {
			t.Fatalf("%s after %s", backend, home)
		}
	}
	now = now.Add(61 * time.Second)
	next, _ := b.pick(p, one, nil)
	if next == home {
		t.Error("still there after a minute")
	}
	if backend, _ := b.pick(p, one, []netip.AddrPort{next}); backend == next {
		t.Error("a backend that doesn't answer keeps its clients")
	}
	// The client moves for good when its backend leaves.
	home, _ = b.pick(p, one, nil)
	rest := pool("web", model.TCP)
	rest.Affinity = p.Affinity
	for _, x := range p.Backends {
		if x.AddrPort() != home {
			rest.Backends = append(rest.Backends, x)
		}
	}
	moved, _ := b.pick(rest, one, nil)
	if again, _ := b.pick(p, one, nil); moved == home || again != moved {
		t.Errorf("at %s, then %s without it, then %s", home, moved, again)
	}
}

func TestAffinityForgetsClients(t *testing.T) {
	p := pool("web", model.TCP, first)
	p.Affinity = time.Minute
	b := newBalancer(model.DefaultScheduler)
	now := time.Unix(1000, 0)
	b.now = func() time.Time { return now }
	shares(t, b, p, 5000)
	now = now.Add(2 * time.Minute)
	shares(t, b, p, 1)
	if n := len(b.pools[p.ID].clients); n != 1 {
		t.Errorf("%d clients are remembered, want 1", n)
	}
}

// TestAffinityIsBounded: more clients than are remembered cost no more memory.
func TestAffinityIsBounded(t *testing.T) {
	p := pool("web", model.UDP, first)
	p.Affinity = time.Hour
	b := newBalancer(model.DefaultScheduler)
	for i := range maxRemembered + 100 {
		client := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		if _, ok := b.pick(p, client, nil); !ok {
			t.Fatal("no backend")
		}
		if b.pools[p.ID].clients[client] == nil {
			t.Fatalf("client %s isn't remembered", client)
		}
	}
	if n := len(b.pools[p.ID].clients); n != maxRemembered {
		t.Errorf("%d clients are remembered, want %d", n, maxRemembered)
	}
}

func TestNobodyToChoose(t *testing.T) {
	b := newBalancer(model.DefaultScheduler)
	if backend, ok := b.pick(pool("web", model.TCP), addr("10.0.0.1"), nil); ok {
		t.Errorf("%s of an empty pool", backend)
	}
	if backend, ok := b.pick(pool("web", model.TCP, first), addr("10.0.0.1"), []netip.AddrPort{first}); ok {
		t.Errorf("%s, which has failed", backend)
	}
}
