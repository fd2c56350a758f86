package planes

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/vm"
)

// burstSizes are how many Services there are, one time after the other: many come
// at once, and many go. What planes write in one piece has bounds that fewer don't
// meet: of netlink's buffers and messages, of maps and sets. (600 have over 1,000
// backends: with fewer, iptables mode writes other comments from the next comparison
// on.)
var burstSizes = []int{1000, 4000, 600, 0}

// TestBurst changes thousands of Services at a time.
func TestBurst(t *testing.T) {
	t.Parallel()
	for _, kind := range dataplane.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			vm.With(t, func(t *testing.T) { burst(t, newTheatre(t, "").topo(t), kind.Name) }, kernelNeeds[kind.Name]...)
		})
	}
}

func burst(t *testing.T, s *Topology, kind string) {
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	r := &Run{topo: s, kind: kind, stateDir: t.TempDir(), flows: map[string]*flow{}, loads: map[string]*load{}}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	for _, n := range burstSizes {
		if vm.Inside() {
			n /= 20 // without KVM
		}
		r.table = manyServices(n)
		if err := errors.Join(r.process.Apply(r.table, false), r.verify()); err != nil {
			t.Errorf("%d Services: %v\n%s", n, err, r.Diagnosis())
			break
		}
	}
	if err := errors.Join(r.Finish(), s.Left(r.stateDir)); err != nil {
		t.Error(err)
	}
}

// manyServices is a table of n Services with two endpoints each.
func manyServices(n int) *model.Table {
	e := newGenerator(0).table.Edit()
	for i := range n {
		id := model.PoolID{Name: fmt.Sprintf("default/s%d:p", i), Proto: model.TCP}
		high, low := byte(i>>8), byte(i)
		e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{
			{Addr: netip.AddrFrom4([4]byte{10, 128, high, low}), Port: 8080, Weight: 1},
			{Addr: netip.AddrFrom4([4]byte{10, 129, high, low}), Port: 8080, Weight: 1},
		}})
		route := model.Route{Pool: id}
		e.SetFrontend(&model.Frontend{
			Key:  model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, high, low}), Port: 80, Proto: model.TCP},
			Name: id.Name, Routes: [model.NumOrigins]model.Route{route, {Pool: id, Masquerade: true}, {Pool: id, Masquerade: true}},
		})
	}
	return e.Table()
}
