package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// maglevPool is a pool of so many backends of a family, all of weight 1.
func maglevPool(n int, ipv6 bool) *Pool {
	p := &Pool{ID: PoolID{Name: "default/many:", Proto: TCP, IPv6: ipv6}, Scheduler: MaglevHashing}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)})
		if ipv6 {
			a = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)})
		}
		p.Backends = append(p.Backends, Backend{Addr: a, Port: 8080, Weight: 1})
	}
	return p
}

// without is the pool without its i-th backend.
func (p *Pool) without(i int) *Pool {
	other := *p
	other.Backends = slices.Delete(slices.Clone(p.Backends), i, i+1)
	return &other
}

// places counts the places of each backend.
func places(p *Pool) (of []int) {
	of = make([]int, len(p.Backends))
	for _, i := range p.Maglev() {
		of[i]++
	}
	return of
}

// TestMaglevShares: backends of one weight have the same number of places but
// for one; in the greatest pool that is promised, shares differ by less than a
// fifth.
func TestMaglevShares(t *testing.T) {
	for _, n := range []int{1, 2, 20, 21, 500, 819, 820, 10_000} {
		for _, ipv6 := range []bool{false, true} {
			of := places(maglevPool(n, ipv6))
			least, most := slices.Min(of), slices.Max(of)
			if most-least > 1 || most*5 >= least*6 {
				t.Errorf("%d backends: between %d and %d places", n, least, most)
			}
		}
	}
}

// TestMaglevWeights: places are as many as weights say.
func TestMaglevWeights(t *testing.T) {
	p := maglevPool(6, false)
	sum := 0
	for i, w := range []uint16{1, 3, 10, 255, 7, 65535} {
		p.Backends[i].Weight = w
		sum += int(w)
	}
	of := places(p)
	for i, b := range p.Backends {
		exact := float64(b.Weight) * float64(maglevPlaces(6)) / float64(sum)
		if d := float64(of[i]) - exact; d < -1-exact/100 || d > 1+exact/100 || of[i] == 0 {
			t.Errorf("weight %d: %d places, want %.1f", b.Weight, of[i], exact)
		}
	}
	if of := places(maglevPool(MaxMaglev+1, false)); slices.Min(of[:MaxMaglev]) == 0 || of[MaxMaglev] != 0 {
		t.Error("of the most backends that a table can name, all should have a place")
	}
}

// TestMaglevDisruption: without one backend, its clients move, and few others.
func TestMaglevDisruption(t *testing.T) {
	for _, n := range []int{3, 10, 100, 2000} {
		for _, ipv6 := range []bool{false, true} {
			all := maglevPool(n, ipv6)
			gone := n / 2
			less := all.without(gone)
			before, after := all.Maglev(), less.Maglev()
			moved, few := 0, len(before)/5
			for hash := range uint32(len(before)) {
				i, _ := before.Pick(hash)
				j, _ := after.Pick(hash)
				if i != gone && all.Backends[i] != less.Backends[j] {
					moved++
				}
			}
			if moved > few {
				t.Errorf("%d backends: of %d places, %d moved though their backend stayed", n, len(before), moved)
			}
		}
	}
}

// TestNodesAgree: two nodes that came to the same backends by different ways, to
// which other backends are local, send every client to the same one.
func TestNodesAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, ipv6 := range []bool{false, true} {
		one, other := maglevPool(50, ipv6), maglevPool(80, ipv6)
		for len(other.Backends) > len(one.Backends) {
			other.Maglev()
			other = other.without(len(other.Backends) - 1)
		}
		for i := range one.Backends {
			one.Backends[i].Weight = uint16(1 + i%3)
			other.Backends[i].Weight = one.Backends[i].Weight
			other.Backends[i].Local = i%2 == 0
		}
		here, there := one.Maglev(), other.Maglev()
		for range 2000 {
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(random.Uint32())}), uint16(random.Uint32()))
			for _, hash := range []uint32{HashAddr(client.Addr()), HashAddrPort(client)} {
				i, _ := here.Pick(hash)
				j, _ := there.Pick(hash)
				if i != j {
					t.Fatalf("%s: one node chooses backend %d, the other one %d", client, i, j)
				}
			}
		}
	}
}

// TestMaglevIsSettled holds the choice to what it was when connections began on
// nodes of an older version.
func TestMaglevIsSettled(t *testing.T) {
	var got []string
	for _, p := range []*Pool{maglevPool(5, false), maglevPool(100, true), maglevPool(1000, false)} {
		for _, client := range []string{"203.0.113.7:4711", "[2001:db8::7]:4711"} {
			c := netip.MustParseAddrPort(client)
			a, _ := p.Pick(HashAddr(c.Addr()))
			b, _ := p.Pick(HashAddrPort(c))
			got = append(got, fmt.Sprintf("%s %s", a.Addr, b.Addr))
		}
	}
	want := []string{
		"10.244.0.3 10.244.0.0", "10.244.0.2 10.244.0.0",
		"fd00::45 fd00::17", "fd00::1a fd00::f",
		"10.244.0.129 10.244.3.213", "10.244.1.78 10.244.1.115",
	}
	if !slices.Equal(got, want) {
		t.Errorf("clients went to\n%q\nand go to\n%q", want, got)
	}
	if _, found := maglevPool(0, false).Pick(1); found {
		t.Error("a pool without backends chose one")
	}
}

// TestHashesSpread: neighbouring addresses and ports go to all backends alike.
func TestHashesSpread(t *testing.T) {
	p := maglevPool(10, false)
	table := p.Maglev()
	var byAddr, byPort [10]int
	for i := range 20_000 {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 40000)
		x, _ := table.Pick(HashAddr(client.Addr()))
		y, _ := table.Pick(HashAddrPort(netip.AddrPortFrom(client.Addr().Unmap(), uint16(i))))
		byAddr[x]++
		byPort[y]++
	}
	for i := range byAddr {
		if byAddr[i] < 1700 || byAddr[i] > 2300 || byPort[i] < 1700 || byPort[i] > 2300 {
			t.Errorf("of 20,000 clients, backend %d has %d by address and %d by address and port", i, byAddr[i], byPort[i])
		}
	}
}
