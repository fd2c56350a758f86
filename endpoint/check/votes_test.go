package check

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestRead(t *testing.T) {
	wish, problems := ReadWish(map[string]string{
		AnnotationCheck: "http:/healthz", AnnotationCheck + "-interval": "500ms", AnnotationCheck + "-fall": "5",
		AnnotationAllFailed: "drop",
	})
	if len(problems) > 0 || wish.Spec.Interval != 500*time.Millisecond || wish.Spec.Fall != 5 || !wish.Drop {
		t.Errorf("read %+v, %v", wish, problems)
	}
	if wish, problems := ReadWish(map[string]string{"other": "x"}); wish.Spec != nil || problems != nil {
		t.Errorf("nothing was asked for: %+v, %v", wish, problems)
	}
}

// TestReadNamesWhatIsWrong: one bad setting doesn't stop the check, a bad check does.
func TestReadNamesWhatIsWrong(t *testing.T) {
	wish, problems := ReadWish(map[string]string{AnnotationCheck: "tcp", AnnotationCheck + "-rise": "many", AnnotationAllFailed: "panic"})
	if wish.Spec == nil || wish.Spec.Rise != DefaultRise || len(problems) != 2 ||
		!strings.Contains(problems[0].Error(), "fairway.dev/health-check-rise") ||
		!strings.Contains(problems[1].Error(), "fairway.dev/health-check-all-failed") {
		t.Errorf("%+v, %v", wish, problems)
	}
	for _, text := range []string{"", "gopher:/", "exec:/bin/sh -c id"} {
		wish, problems := ReadWish(map[string]string{AnnotationCheck: text})
		if wish.Spec != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), AnnotationCheck) {
			t.Errorf("%q: %+v, %v", text, wish, problems)
		}
	}
}

func nodes(n int, except ...int) *Nodes {
	var list []Node
	for i := range n {
		list = append(list, Node{
			Name: fmt.Sprintf("node%d", i), Ready: !slices.Contains(except, i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 77, 0, byte(i)})},
		})
	}
	return NewNodes(list)
}

func TestCheckers(t *testing.T) {
	beside, outside := netip.MustParseAddr("10.77.0.4"), netip.MustParseAddr("2001:db8::4")
	named := "node2"
	if got := nodes(9).Checkers(beside, nil); len(got) != 3 {
		t.Errorf("a machine that says that it has the address: %v, want three, whoever says so", got)
	}
	if got := nodes(9).Checkers(outside, &named); !slices.Equal(got, []string{"node2"}) {
		t.Errorf("by name: %v", got)
	}
	if got := nodes(9, 2).Checkers(beside, &named); len(got) != 3 || slices.Contains(got, "node2") {
		t.Errorf("beside a dead agent: %v", got)
	}
	if got := nodes(2).Checkers(outside, nil); len(got) != 2 {
		t.Errorf("of two nodes: %v", got)
	}
	if got := NewNodes(nil).Checkers(outside, nil); len(got) != 0 {
		t.Errorf("without nodes: %v", got)
	}
}

// TestCheckersShareTheWork: endpoints are spread over the nodes, and one node
// that goes changes only what it checked.
func TestCheckersShareTheWork(t *testing.T) {
	all, less := nodes(10), nodes(10, 3)
	count := map[string]int{}
	for i := range 3000 {
		addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		before, after := all.Checkers(addr, nil), less.Checkers(addr, nil)
		if len(before) != 3 || len(after) != 3 {
			t.Fatalf("%s: checked by %v, %v", addr, before, after)
		}
		for _, n := range before {
			count[n]++
		}
		if !slices.Contains(before, "node3") && !slices.Equal(before, after) {
			t.Errorf("%s: node3 went, and checkers went from %v to %v", addr, before, after)
		}
	}
	for n, c := range count {
		if c < 700 || c > 1100 {
			t.Errorf("%s checks %d of 3000", n, c)
		}
	}
}

func TestReportsSayWhatWasFound(t *testing.T) {
	owner := types.NamespacedName{Namespace: "shop", Name: strings.Repeat("s", 63)}
	var findings []Finding
	for i := range 2600 {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		if i%2 == 1 {
			addr = netip.MustParseAddr(fmt.Sprintf("fd00::%x", i))
		}
		f := Finding{Addr: netip.AddrPortFrom(addr, 8000), Verdict: Verdict{Health: Healthy}}
		if i%5 == 0 {
			f.Verdict = Verdict{Health: Unhealthy, Reason: "connection refused"}
		}
		findings = append(findings, f)
	}
	unknown := Finding{Addr: netip.MustParseAddrPort("10.9.9.9:8000")}
	reports := Reports(strings.Repeat("n", 63), owner, append(findings, unknown))
	var got []Finding
	names := map[string]bool{}
	for _, r := range reports {
		if len(r.Endpoints) > maxReported || names[r.Name] || len(validation.IsDNS1123Subdomain(r.Name)) > 0 {
			t.Errorf("report %s has %d endpoints", r.Name, len(r.Endpoints))
		}
		names[r.Name] = true
		for label, value := range r.Labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("label %s: %v", label, problems)
			}
		}
		if key, node, is := IsReport(r); !is || node != strings.Repeat("n", 63) || key.Name != owner.Name {
			t.Errorf("report of %s by %s: %v", key, node, is)
		}
		if _, belongs := ServiceOf(r); belongs || Concerns(r) {
			t.Error("a proxy would take a report for endpoints")
		}
		got = append(got, Findings(r)...)
	}
	for _, list := range [][]Finding{got, findings} {
		slices.SortFunc(list, func(a, b Finding) int { return a.Addr.Compare(b.Addr) })
	}
	if !reflect.DeepEqual(got, findings) {
		t.Errorf("%d findings came back as %d others", len(findings), len(got))
	}
	if again := Reports(strings.Repeat("n", 63), owner, findings); !reflect.DeepEqual(again, reports) {
		t.Error("the same findings make other reports")
	}
}

func TestDecide(t *testing.T) {
	three := []string{"a", "b", "c"}
	for _, c := range []struct {
		was   Health
		votes string // node and h or u
		want  Health
	}{
		{Unknown, "", Unknown},
		{Healthy, "", Healthy},
		{Healthy, "au", Unhealthy}, // the others don't vote
		{Healthy, "au bh", Healthy},
		{Unhealthy, "au bh", Unhealthy},
		{Healthy, "au bu ch", Unhealthy},
		{Unhealthy, "ah bu ch", Healthy},
		{Healthy, "du eu", Healthy}, // nobody asked them
	} {
		var votes []Vote
		for v := range strings.FieldsSeq(c.votes) {
			health := Healthy
			if v[1] == 'u' {
				health = Unhealthy
			}
			votes = append(votes, Vote{v[:1], Verdict{Health: health, Reason: "why"}})
		}
		if got := Decide(c.was, three, votes); got.Health != c.want {
			t.Errorf("%s and %q: %s, want %s", c.was, c.votes, got.Health, c.want)
		}
	}
}

func TestPortOf(t *testing.T) {
	port := func(name string, number int32, p corev1.Protocol) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &p}
	}
	ports := []discoveryv1.EndpointPort{port("dns", 53, corev1.ProtocolUDP), port("web", 80, corev1.ProtocolTCP), port("admin", 8080, corev1.ProtocolTCP)}
	for text, want := range map[string]uint16{"tcp": 80, "udp:x": 53, "icmp": 0, "tcp admin": 8080, "tcp 9000": 9000} {
		kind, name, _ := strings.Cut(text, " ")
		spec, err := Parse(kind)
		if err != nil {
			t.Fatal(err)
		}
		spec.Port = name
		if got, err := PortOf(&spec, ports); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	spec := Spec{Kind: TCP, Port: "none"}
	if _, err := PortOf(&spec, ports); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("a port that there isn't: %v", err)
	}
}
