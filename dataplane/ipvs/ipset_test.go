package ipvs

import (
	"cmp"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// inNamespace runs the test on a thread in a network namespace of its own.
func inNamespace(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: needs root to make a network namespace")
	}
	ns := netnstest.New(t)
	if err := ns.Do(func() error { runtime.LockOSThread(); defer runtime.UnlockOSThread(); test(t); return nil }); err != nil {
		t.Fatal(err)
	}
}

func sample(id setID) []ipset.Marked {
	a, b := netip.MustParseAddr("10.96.0.1"), netip.MustParsePrefix("10.244.0.0/16")
	if id.ipv6 {
		a, b = netip.MustParseAddr("fd00:96::1"), netip.MustParsePrefix("fd00:244::/64")
	}
	port := ipset.Element{Addr: a, Port: 80, Proto: model.TCP}
	sctp := ipset.Element{Addr: a, Port: 81, Proto: model.SCTP}
	switch id.typ() {
	case ipset.HashIP:
		return []ipset.Marked{{Element: ipset.Element{Addr: a}}}
	case ipset.HashNet:
		return []ipset.Marked{{Element: ipset.Element{Net: b}}, {Element: ipset.Element{Net: hostPrefix(a)}}}
	case ipset.BitmapPort:
		return []ipset.Marked{{Element: ipset.Element{Port: 30080}}, {Element: ipset.Element{Port: 65535}}}
	case ipset.HashIPPortIP:
		port.Net, sctp.Net = hostPrefix(a), hostPrefix(a.Next())
	case ipset.HashIPPortNet:
		port.Net, sctp.Net = b, hostPrefix(a)
	}
	list := []ipset.Marked{{Element: port}, {Element: sctp}}
	if setKinds[id.kind].marks {
		list[0].Mark, list[1].Mark = ipset.Mark{Value: markRefuse, Mask: ^uint32(0)}, ipset.Mark{Value: 0x4000, Mask: 0x4000}
	}
	return list
}

func TestSetsAreReadBackAsWritten(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		sets, err := ipset.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := sets.Probe(); err != nil {
			t.Fatal(err)
		}
		for _, id := range append(allSets(false), allSets(true)...) {
			if l, err := sets.List(id.name()); err != nil || l != nil {
				t.Fatalf("%s before: %v, %v", id.name(), l, err)
			}
			if err := sets.Create(id.of(), id.name()); err != nil {
				t.Fatal(err)
			}
			if err := sets.Add(id.of(), id.name(), sample(id)); err != nil {
				t.Fatal(err)
			}
			l, err := sets.List(id.name())
			if err != nil {
				t.Fatal(err)
			}
			if !l.Fits(id.of()) {
				t.Errorf("%s does not fit: %+v", id.name(), l)
			}
			slices.SortFunc(l.Elements, func(a, b ipset.Marked) int { return a.Compare(b.Element) })
			want := sample(id)
			slices.SortFunc(want, func(a, b ipset.Marked) int { return a.Compare(b.Element) })
			if diff := gocmp.Diff(want, l.Elements, gocmp.Comparer(func(a, b netip.Addr) bool { return a == b }), gocmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("%s: %s", id.name(), diff)
			}
			if err := sets.Remove(id.of(), id.name(), append(sample(id), sample(id)...)); err != nil {
				t.Fatal(err)
			}
			if l, err = sets.List(id.name()); err != nil || len(l.Elements) != 0 {
				t.Errorf("%s after: %v, %v", id.name(), l, err)
			}
			if err := cmp.Or(sets.Destroy(id.name()), sets.Destroy(id.name())); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestManyElementsTakeManyMessages(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		sets, err := ipset.Open()
		if err != nil {
			t.Fatal(err)
		}
		id := setID{setLoopBack, false}
		if err := sets.Create(id.of(), id.name()); err != nil {
			t.Fatal(err)
		}
		var many []ipset.Marked
		for a, n := netip.MustParseAddr("10.0.0.1"), 0; n < 20000; a, n = a.Next(), n+1 {
			many = append(many, ipset.Marked{Element: ipset.Element{Addr: a, Port: 80, Proto: model.TCP, Net: hostPrefix(a)}})
		}
		if err := sets.Add(id.of(), id.name(), many); err != nil {
			t.Fatal(err)
		}
		l, err := sets.List(id.name())
		if err != nil || len(l.Elements) != len(many) {
			t.Fatalf("%d elements, %v", len(l.Elements), err)
		}
	})
}
