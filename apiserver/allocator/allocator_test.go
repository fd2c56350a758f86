package allocator

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// TestPoolGivesEverythingOnce: a pool gives each number once, those of the
// static band last, and then none.
func TestPoolGivesEverythingOnce(t *testing.T) {
	const size, band = 100, 16
	p := newPool(size, band)
	seen := map[uint64]bool{}
	for i := range uint64(size) {
		n, ok := p.next()
		if !ok || seen[n] || n >= size {
			t.Fatalf("number %d is %d, %v", i, n, ok)
		}
		if (n < band) != (i >= size-band) {
			t.Errorf("number %d is %d: the static band comes last", i, n)
		}
		seen[n] = true
		p.take(n, int64(i+1))
		p.release(n)
	}
	if n, ok := p.next(); ok {
		t.Errorf("a full pool gives %d", n)
	}
	p.recordFree(42, size+1)
	if n, ok := p.next(); !ok || n != 42 {
		t.Errorf("a pool with one free number gives %d, %v", n, ok)
	}
}

// TestPoolOutOfOrder: the watch reports late what own writes have already
// told, and must not undo it.
func TestPoolOutOfOrder(t *testing.T) {
	p := newPool(1, 0)
	free := func() bool {
		n, ok := p.next()
		if ok {
			p.release(n)
		}
		return ok
	}
	p.take(0, 10)
	p.recordFree(0, 12)
	p.take(0, 10) // from the watch
	if !free() {
		t.Error("an old taking, reported late, makes a number taken again")
	}
	p.confirmFree(0, 12)
	if len(p.taken) != 0 {
		t.Errorf("%v is remembered of a free number", p.taken)
	}
	p.take(0, 15)
	p.confirmFree(0, 12)
	if free() {
		t.Error("an old release, reported late, makes a number free")
	}
	p.reset(14)
	if free() {
		t.Error("a relist forgets what is newer")
	}
	p.reset(15)
	if !free() {
		t.Error("a relist doesn't forget what is older")
	}
}

func TestRanges(t *testing.T) {
	for _, test := range []struct {
		cidr, first, last string
		size              uint64
	}{
		{"10.96.0.0/16", "10.96.0.1", "10.96.255.254", 65534},
		{"10.96.0.0/30", "10.96.0.1", "10.96.0.2", 2},
		{"fd00::/112", "fd00::1", "fd00::ffff", 65535},
		{"fd00::/65", "fd00::1", "fd00::7fff:ffff:ffff:ffff", 1<<63 - 1},
	} {
		r, err := newAddresses(netip.MustParsePrefix(test.cidr))
		if err != nil {
			t.Fatal(err)
		}
		if r.size != test.size || r.address(0).String() != test.first || r.address(r.size-1).String() != test.last {
			t.Errorf("%s: %d from %s to %s", test.cidr, r.size, r.address(0), r.address(r.size-1))
		}
		for _, ends := range []string{test.first, test.last} {
			addr := netip.MustParseAddr(ends)
			n, ok := r.number(addr)
			if !ok || r.address(n) != addr {
				t.Errorf("%s: %s is number %d, %v, which is %s", test.cidr, addr, n, ok, r.address(n))
			}
		}
		outside := netip.MustParseAddr(test.last).Next()
		if _, ok := r.number(outside); ok {
			t.Errorf("%s holds %s", test.cidr, outside)
		}
	}
	for _, bad := range []string{"10.96.0.0/31", "fd00::/127", "fd00::/64"} {
		if _, err := newAddresses(netip.MustParsePrefix(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestHugeRange: choosing from a range that no memory could list.
func TestHugeRange(t *testing.T) {
	a, err := New([]netip.Prefix{netip.MustParsePrefix("fd00::/65")}, utilnet.PortRange{Base: 30000, Size: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := a.Plan()
	defer plan.Release()
	seen := map[string]bool{}
	for range 1000 {
		ip, err := plan.ClusterIP(corev1.IPv6Protocol)
		if err != nil || seen[ip] {
			t.Fatalf("address %s, %v", ip, err)
		}
		seen[ip] = true
	}
}

// TestSpelling: one address has one claim, however it is written.
func TestSpelling(t *testing.T) {
	if a, b := ClusterIPKey("fd00::1"), ClusterIPKey("FD00:0:0::1"); a != b {
		t.Errorf("claims %s and %s", a, b)
	}
}

func BenchmarkNext(b *testing.B) {
	p := newPool(65534, 256)
	for i := range uint64(60000) {
		p.take(i, 1)
	}
	for b.Loop() {
		n, ok := p.next()
		if !ok {
			b.Fatal("full")
		}
		p.release(n)
	}
}
