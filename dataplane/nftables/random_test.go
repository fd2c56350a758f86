package nftables

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestRandomChanges goes from one random table to the next, and after each
// change the kernel must hold what the rendering says. Every now and then
// another process takes over, and must find nothing to do.
func TestRandomChanges(t *testing.T) {
	inNamespace(t)
	rng := rand.New(rand.NewPCG(7, 8))
	p := newPlane(t, kernel.Options{})
	table := model.NewTable()
	for step := range 150 {
		e := table.Edit()
		for range 1 + rng.IntN(3) {
			randomEdit(rng, e)
		}
		table = e.Table()
		if err := table.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Apply(context.Background(), table, kernel.VerifyIf(rng.IntN(10) == 0)); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		checkObjects(t, p, table)
		if step%20 == 0 {
			checkNothingToDo(t, p, table)
			p = newPlane(t, kernel.Options{})
		}
		if t.Failed() {
			t.Fatalf("step %d", step)
		}
	}
}

func checkNothingToDo(t *testing.T, p *Plane, table *model.Table) {
	t.Helper()
	c, err := p.socket.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range newPlane(t, kernel.Options{}).difference(c, table).what {
		if !isSpare(what) {
			t.Errorf("another process would %s", what)
		}
	}
}

// randomEdit changes one thing: the settings, or a Service port.
func randomEdit(rng *rand.Rand, e *model.Edit) {
	if rng.IntN(4) == 0 {
		e.SetSettings(&model.Settings{
			Pods: model.PodMatch{
				Prefixes:   randomPrefixes(rng, "10.244.0.0", "fd00:10:244::"),
				Interfaces: pick(rng, "cali*", "cali12", "eth1", "e*", "*"),
			},
			Reserved: randomPrefixes(rng, "10.96.0.0", "fd00:10:96::"),
			Exempt:   []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(rng.IntN(4))})},
		})
		return
	}
	n := rng.IntN(6)
	proto := protocols[n%3]
	v6 := rng.IntN(2) == 0
	ids := []model.PoolID{
		{Name: fmt.Sprintf("default/service-%d:p", n), Proto: proto, IPv6: v6},
		{Name: fmt.Sprintf("default/service-%d:p", n), Proto: proto, IPv6: v6, Local: true},
	}
	key := model.Key{Addr: addr("10.96.0.0"), Port: uint16(80 + n), Proto: proto}
	if v6 {
		key.Addr = addr("fd00:10:96::1")
	}
	if rng.IntN(5) == 0 {
		e.DeleteFrontend(key)
		e.DeletePool(ids[0])
		e.DeletePool(ids[1])
		return
	}
	for _, id := range ids {
		e.SetPool(randomPool(rng, id))
	}
	f := &model.Frontend{Key: key, Name: ids[0].Name}
	for o := range f.Routes {
		f.Routes[o] = model.Route{Pool: ids[rng.IntN(2)], Masquerade: rng.IntN(2) == 0}
	}
	if rng.IntN(2) == 0 {
		f.Sources = randomPrefixes(rng, "198.51.0.0", "2001:db8::")
	}
	e.SetFrontend(f)
}

func randomPool(rng *rand.Rand, id model.PoolID) *model.Pool {
	p := &model.Pool{ID: id, Empty: model.Empty(rng.IntN(2)), Scheduler: []model.Scheduler{"", model.SourceHashing, model.RoundRobin}[rng.IntN(3)]}
	if rng.IntN(2) == 0 {
		p.Affinity = time.Duration(1+rng.IntN(3)) * time.Minute
	}
	for i := range byte(6) {
		b := model.Backend{Addr: netip.AddrFrom4([4]byte{10, 244, 0, i}), Port: 8080, Weight: uint16(1 + rng.IntN(2)), Local: true}
		if id.IPv6 {
			b.Addr = netip.MustParseAddr(fmt.Sprintf("fd00:10:244::%d", i+1))
		}
		switch rng.IntN(3) {
		case 0:
			p.Backends = append(p.Backends, b)
		case 1:
			p.Draining = append(p.Draining, b)
		}
	}
	return p
}

// randomPrefixes are prefixes of several lengths that touch and contain each
// other, of both families.
func randomPrefixes(rng *rand.Rand, v4, v6 string) []netip.Prefix {
	out := []netip.Prefix{}
	for range rng.IntN(4) {
		a := addr(v4).As4()
		a[2] = byte(rng.IntN(4))
		out = append(out, netip.PrefixFrom(netip.AddrFrom4(a), 22+rng.IntN(5)).Masked())
		b := addr(v6).As16()
		b[15] = byte(rng.IntN(4))
		out = append(out, netip.PrefixFrom(netip.AddrFrom16(b), 124+rng.IntN(5)).Masked())
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Compare(b) })
	return slices.Compact(out)
}

func pick(rng *rand.Rand, list ...string) []string {
	var out []string
	for _, s := range list {
		if rng.IntN(3) == 0 {
			out = append(out, s)
		}
	}
	return out
}
