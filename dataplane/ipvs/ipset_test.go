package ipvs

import (
	"cmp"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
	gocmp "github.com/google/go-cmp/cmp"
)

// inNamespace runs the test on a thread in a network namespace of its own.
func inNamespace(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: needs root to make a network namespace")
	}
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := ns.Do(func() error { runtime.LockOSThread(); defer runtime.UnlockOSThread(); test(t); return nil }); err != nil {
		t.Fatal(err)
	}
}

func sample(id setID) []markedElement {
	a, b := netip.MustParseAddr("10.96.0.1"), netip.MustParsePrefix("10.244.0.0/16")
	if id.ipv6 {
		a, b = netip.MustParseAddr("fd00:96::1"), netip.MustParsePrefix("fd00:244::/64")
	}
	port := element{addr: a, port: 80, proto: model.TCP}
	sctp := element{addr: a, port: 81, proto: model.SCTP}
	switch id.typ() {
	case hashIP:
		return []markedElement{{element: element{addr: a}}}
	case hashNet:
		return []markedElement{{element: element{net: b}}, {element: element{net: hostPrefix(a)}}}
	case bitmapPort:
		return []markedElement{{element: element{port: 30080}}, {element: element{port: 65535}}}
	case hashIPPortIP:
		port.net, sctp.net = hostPrefix(a), hostPrefix(a.Next())
	case hashIPPortNet:
		port.net, sctp.net = b, hostPrefix(a)
	}
	list := []markedElement{{element: port}, {element: sctp}}
	if setKinds[id.kind].marks {
		list[0].mark, list[1].mark = mark{markRefuse, ^uint32(0)}, mark{0x4000, 0x4000}
	}
	return list
}

func TestSetsAreReadBackAsWritten(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		sets, err := openIpsets()
		if err != nil {
			t.Fatal(err)
		}
		if err := sets.probe(); err != nil {
			t.Fatal(err)
		}
		for _, id := range append(allSets(false), allSets(true)...) {
			if l, err := sets.list(id.name()); err != nil || l != nil {
				t.Fatalf("%s before: %v, %v", id.name(), l, err)
			}
			if err := sets.create(id, id.name()); err != nil {
				t.Fatal(err)
			}
			if err := sets.add(id, id.name(), sample(id)); err != nil {
				t.Fatal(err)
			}
			l, err := sets.list(id.name())
			if err != nil {
				t.Fatal(err)
			}
			if !l.fits(id) {
				t.Errorf("%s does not fit: %+v", id.name(), l)
			}
			slices.SortFunc(l.elements, func(a, b markedElement) int { return a.compare(b.element) })
			want := sample(id)
			slices.SortFunc(want, func(a, b markedElement) int { return a.compare(b.element) })
			if diff := gocmp.Diff(want, l.elements, gocmp.AllowUnexported(markedElement{}, element{}, mark{}), gocmp.Comparer(func(a, b netip.Addr) bool { return a == b }), gocmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("%s: %s", id.name(), diff)
			}
			if err := sets.remove(id, id.name(), append(sample(id), sample(id)...)); err != nil {
				t.Fatal(err)
			}
			if l, err = sets.list(id.name()); err != nil || len(l.elements) != 0 {
				t.Errorf("%s after: %v, %v", id.name(), l, err)
			}
			if err := cmp.Or(sets.destroy(id.name()), sets.destroy(id.name())); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestManyElementsTakeManyMessages(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		sets, err := openIpsets()
		if err != nil {
			t.Fatal(err)
		}
		id := setID{setLoopBack, false}
		if err := sets.create(id, id.name()); err != nil {
			t.Fatal(err)
		}
		var many []markedElement
		for a, n := netip.MustParseAddr("10.0.0.1"), 0; n < 20000; a, n = a.Next(), n+1 {
			many = append(many, markedElement{element: element{addr: a, port: 80, proto: model.TCP, net: hostPrefix(a)}})
		}
		if err := sets.add(id, id.name(), many); err != nil {
			t.Fatal(err)
		}
		l, err := sets.list(id.name())
		if err != nil || len(l.elements) != len(many) {
			t.Fatalf("%d elements, %v", len(l.elements), err)
		}
	})
}
