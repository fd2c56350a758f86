package model

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func testTable() *Table {
	cluster := PoolID{Name: "default/web:http", Proto: TCP}
	local := PoolID{Name: "default/web:http", Proto: TCP, Local: true}
	e := NewTable().Edit()
	e.SetSettings(&Settings{
		Pods:     PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Interfaces: []string{"cali*"}},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		Exempt:   []netip.Addr{addr("10.96.0.77")},
	})
	e.SetPool(&Pool{ID: cluster, Backends: []Backend{
		{Addr: addr("10.244.1.2"), Port: 8080, Weight: 1, Local: true},
		{Addr: addr("10.244.2.2"), Port: 8080, Weight: 1},
	}})
	e.SetPool(&Pool{ID: local, Empty: Drop})
	e.SetFrontend(&Frontend{
		Key: Key{addr("10.96.0.10"), 80, TCP}, Name: "default/web:http",
		Routes: [NumOrigins]Route{{Pool: cluster}, {Pool: cluster, Masquerade: true}, {Pool: cluster, Masquerade: true}},
	})
	e.SetFrontend(&Frontend{
		Key: Key{addr("192.0.2.1"), 30080, TCP}, Name: "default/web:http", FrontendType: NodePort,
		Routes:  [NumOrigins]Route{{Pool: cluster}, {Pool: cluster, Masquerade: true}, {Pool: local}},
		Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("10.0.0.0/8")},
	})
	return e.Table()
}

func TestDecide(t *testing.T) {
	table := testTable()
	if err := table.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, src, in, dst string
		port               uint16
		proto              Protocol
		action             Action
		reason             Reason
		masquerade         bool
	}{
		{"pod to cluster IP", "10.244.1.9", "veth0", "10.96.0.10", 80, TCP, Forward, HasBackend, false},
		{"pod by interface", "172.16.0.1", "cali12", "10.96.0.10", 80, TCP, Forward, HasBackend, false},
		{"node to cluster IP", "192.0.2.1", "", "10.96.0.10", 80, TCP, Forward, HasBackend, true},
		{"outside to cluster IP", "198.51.100.7", "eth0", "10.96.0.10", 80, TCP, Forward, HasBackend, true},
		{"another protocol", "10.244.1.9", "veth0", "10.96.0.10", 80, UDP, Refuse, UnknownPort, false},
		{"unknown port", "10.244.1.9", "veth0", "10.96.0.10", 81, TCP, Refuse, UnknownPort, false},
		{"unknown address", "10.244.1.9", "veth0", "10.96.9.9", 80, TCP, Refuse, UnknownPort, false},
		{"exempt address", "10.244.1.9", "veth0", "10.96.0.77", 80, TCP, Pass, Exempted, false},
		{"not ours", "10.244.1.9", "veth0", "203.0.113.1", 80, TCP, Pass, NotAService, false},
		{"local only, none here", "198.51.100.7", "eth0", "192.0.2.1", 30080, TCP, Discard, NoBackend, false},
		{"local only, from a pod", "10.244.1.9", "veth0", "192.0.2.1", 30080, TCP, Forward, HasBackend, false},
		{"source not allowed", "203.0.113.9", "eth0", "192.0.2.1", 30080, TCP, Discard, SourceNotAllowed, false},
	} {
		v := table.Decide(Packet{Src: addr(c.src), Dst: addr(c.dst), DstPort: c.port, Proto: c.proto, In: c.in})
		if v.Action != c.action || v.Reason != c.reason || v.Masquerade != c.masquerade {
			t.Errorf("%s: got %s (%s) masquerade %t", c.name, v.Action, v.Reason, v.Masquerade)
		}
	}
}

func TestHairpinIsMasqueraded(t *testing.T) {
	v := testTable().Decide(Packet{Src: addr("10.244.1.2"), Dst: addr("10.96.0.10"), DstPort: 80, Proto: TCP, In: "veth0"})
	for _, b := range v.Backends() {
		if got, want := v.Masquerades(b), b.Addr == addr("10.244.1.2"); got != want {
			t.Errorf("backend %s: masquerade %t, want %t", b.AddrPort(), got, want)
		}
	}
}

// TestSharedAgainstMap holds the shared map against Go's own, over random edits
// of which every intermediate table must stay as it was.
func TestSharedAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var current shared[int, int]
	want := map[int]int{}
	for range 300 {
		before, beforeWant := current, copyMap(want)
		e := current.edit()
		for range rng.IntN(40) {
			if k := rng.IntN(500); rng.IntN(3) == 0 {
				e.delete(k)
				delete(want, k)
			} else {
				v := 1 + rng.IntN(5)
				e.set(k, v)
				want[k] = v
			}
		}
		current = e.done()
		check(t, before, beforeWant)
		check(t, current, want)
		checkDifferences(t, before, current, beforeWant, want)
	}
}

func copyMap(m map[int]int) map[int]int {
	c := map[int]int{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

func check(t *testing.T, m shared[int, int], want map[int]int) {
	t.Helper()
	count := 0
	for range m.values() {
		count++
	}
	if m.n != len(want) || count != len(want) {
		t.Fatalf("%d entries, %d counted, want %d", m.n, count, len(want))
	}
	for k, v := range want {
		if m.get(k) != v {
			t.Fatalf("key %d: got %d, want %d", k, m.get(k), v)
		}
	}
}

func checkDifferences(t *testing.T, old, now shared[int, int], oldWant, want map[int]int) {
	t.Helper()
	seen := map[int]bool{}
	differences(old, now, func(k, before, after int) {
		if seen[k] || before != oldWant[k] || after != want[k] || before == after {
			t.Fatalf("key %d: reported %d to %d (again: %t), want %d to %d", k, before, after, seen[k], oldWant[k], want[k])
		}
		seen[k] = true
	})
	for k := range 500 {
		if oldWant[k] != want[k] && !seen[k] {
			t.Fatalf("key %d: change from %d to %d not reported", k, oldWant[k], want[k])
		}
	}
}

func TestSince(t *testing.T) {
	old := testTable()
	e := old.Edit()
	id := PoolID{Name: "default/web:http", Proto: TCP}
	e.SetPool(&Pool{ID: id, Backends: []Backend{
		{Addr: addr("10.244.1.3"), Port: 8080, Weight: 1, Local: true},
		{Addr: addr("10.244.2.2"), Port: 8080, Weight: 1},
	}, Draining: []Backend{{Addr: addr("10.244.1.4"), Port: 8080, Weight: 1}}})
	same := *old.Frontend(Key{addr("10.96.0.10"), 80, TCP})
	e.SetFrontend(&same)
	e.DeleteFrontend(Key{addr("192.0.2.1"), 30080, TCP})
	c := e.Table().Since(old)
	if c.Settings || len(c.Frontends) != 1 || c.Frontends[0].New != nil || len(c.Pools) != 1 {
		t.Fatalf("changes: %+v", c)
	}
	added, removed := c.Pools[0].Backends()
	if len(added) != 1 || added[0].Addr != addr("10.244.1.3") || len(removed) != 1 || removed[0].Addr != addr("10.244.1.2") {
		t.Errorf("added %v, removed %v", added, removed)
	}
	if gone := c.Pools[0].Gone(); len(gone) != 1 || gone[0].Addr != addr("10.244.1.2") {
		t.Errorf("gone %v", gone)
	}
	if all := old.Since(nil); !all.Settings || len(all.Frontends) != 2 || len(all.Pools) != 2 {
		t.Errorf("since nothing: %+v", all)
	}
}

// BenchmarkOneChange is the model's part of the cost rule: one pool changes in
// a table of 10,000 Services.
func BenchmarkOneChange(b *testing.B) {
	e := NewTable().Edit()
	ids := make([]PoolID, 10000)
	for i := range ids {
		ids[i] = PoolID{Name: "default/web" + string(rune('a'+i%26)) + netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String(), Proto: TCP}
		e.SetPool(&Pool{ID: ids[i]})
		e.SetFrontend(&Frontend{Key: Key{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80, TCP},
			Routes: [NumOrigins]Route{{Pool: ids[i]}, {Pool: ids[i]}, {Pool: ids[i]}}})
	}
	table := e.Table()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := table.Edit()
		e.SetPool(&Pool{ID: ids[i%len(ids)], Empty: Drop})
		next := e.Table()
		if c := next.Since(table); len(c.Pools) > 1 {
			b.Fatal("more than one change")
		}
		table = next
	}
}
