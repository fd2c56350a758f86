package overview

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/internal/kernel"
)

func TestWriteSaysWhatIsNotWell(t *testing.T) {
	down := false
	in := Input{
		Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"fairway.dev/mode": "nftables"}}, Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "it stopped answering"}},
		}}},
		Services: []corev1.Service{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"10.96.0.5"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
			}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "empty"}},
		},
		Slices: []discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &down}}, {Addresses: []string{"10.0.0.2"}}},
		}},
		Events: []corev1.Event{{Type: corev1.EventTypeWarning, Reason: "InvalidValue", Message: "annotation x is ignored", InvolvedObject: corev1.ObjectReference{Kind: "Service", Namespace: "default", Name: "web"}}},
	}
	for _, r := range check.Reports("a", types.NamespacedName{Namespace: "default", Name: "web"}, []check.Finding{{
		Addr: netip.MustParseAddrPort("10.0.0.1:80"), Verdict: check.Verdict{Health: check.Unhealthy, Reason: "connection refused"},
	}}) {
		in.Slices = append(in.Slices, *r)
	}
	var out strings.Builder
	if err := Write(&out, in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"NotReady", "nftables", "fd00::1", "1 of 2", "node a is not ready: it stopped answering", "service default/empty has no endpoints",
		"service default/web has no load balancer address", "endpoint 10.0.0.1:80 of default/web: connection refused, seen from a",
		"InvalidValue: annotation x is ignored",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "are not shown") {
		t.Errorf("all was read, and the screen says:\n%s", out.String())
	}
	// What the user may not read is said.
	out.Reset()
	if err := Write(&out, Input{NoEvents: "no rights"}); err != nil || !strings.Contains(out.String(), "WARNINGS are not shown: no rights\n") {
		t.Errorf("it isn't said that no Events can be read:\n%s", out.String())
	}
	out.Reset()
	// None passes, and all get traffic: it is said.
	in.Slices[0].Endpoints[0].Conditions.Ready = nil
	in.Slices[0].Endpoints = in.Slices[0].Endpoints[:1]
	in.Slices[0].Ports = in.Slices[1].Ports
	out.Reset()
	if err := Write(&out, in); err != nil || !strings.Contains(out.String(), "none of its 1 endpoints passes its check; all get traffic (fairway.dev/health-check-all-failed: keep)") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := Write(&out, Input{}); err != nil || !strings.Contains(out.String(), "all is well") {
		t.Errorf("of nothing: %v\n%s", err, out.String())
	}
}

// TestFamiliesAndRoom: endpoints are counted by family, each once; what has no
// room is counted, and what is not well comes first.
func TestFamiliesAndRoom(t *testing.T) {
	var in Input
	down := false
	for i := range 100 {
		name := fmt.Sprintf("s%02d", i)
		in.Services = append(in.Services, corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		for family, address := range map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "10.0.0.1", discoveryv1.AddressTypeIPv6: "fd00::1"} {
			s := discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: family,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}, {Addresses: []string{address}}},
			}
			if i >= 70 {
				s.Endpoints[0].Conditions.Ready, s.Endpoints[1].Conditions.Ready = &down, &down
			}
			in.Slices = append(in.Slices, s)
		}
	}
	var out strings.Builder
	if err := Write(&out, in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 1 IPv4, 1 of 1 IPv6", "0 of 1 IPv4, 0 of 1 IPv6", "and 60 more:", "default/s99 ", "and 10 more like these"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestInForce: without an API the screen says so, and what agents have in force.
func TestInForce(t *testing.T) {
	in := Input{
		NoAPI: "the API server doesn't answer in 700ms",
		Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}},
		Services: []corev1.Service{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "down"}},
		},
		Taking: map[types.NamespacedName]int{{Namespace: "default", Name: "web"}: 2},
		Modes:  map[string]string{"m1": "nftables"},
	}
	var out strings.Builder
	if err := Write(&out, in); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"m1    answers  nftables", "2 in force", "service default/down has no endpoints", "The API can't be asked: the API server doesn't answer in 700ms"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the screen lacks %q:\n%s", part, out.String())
		}
	}
	if strings.Contains(out.String(), "NotReady") || strings.Contains(out.String(), "default/web has no") {
		t.Errorf("the screen guesses:\n%s", out.String())
	}
}

// TestUnannounced: an address that no node announces is a problem, with the nodes' reasons.
func TestUnannounced(t *testing.T) {
	in := Input{
		Services:    []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}},
		Unannounced: map[types.NamespacedName]string{{Namespace: "default", Name: "web"}: "no node announces 10.77.0.1 (n1: it runs without --announce)"},
	}
	var out strings.Builder
	if err := Write(&out, in); err != nil || !strings.Contains(out.String(), "service default/web: no node announces 10.77.0.1 (n1: it runs without --announce)") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestXDP: a node's mode names the interfaces with XDP, and a line each one without it.
func TestXDP(t *testing.T) {
	in := Input{Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}, Modes: map[string]string{"n1": "ebpf"},
		Drivers: map[string][]kernel.Driver{"n1": {{Interface: "eth0", XDP: true}, {Interface: "eth1", Why: "another XDP program is there"}}}}
	var b strings.Builder
	if err := Write(&b, in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ebpf, XDP at eth0", "no XDP at eth1: another XDP program is there"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the screen lacks %q:\n%s", want, b.String())
		}
	}
}

// TestAhead: whose rules and programs take packets first is worth knowing.
func TestAhead(t *testing.T) {
	var b strings.Builder
	if err := Write(&b, Input{Ahead: map[string][]string{"n1": {"table ip raw, chain PREROUTING drops packets to port 80"}}}); err != nil {
		t.Fatal(err)
	}
	_, notes, _ := strings.Cut(b.String(), "WORTH KNOWING")
	if !strings.Contains(notes, "table ip raw, chain PREROUTING drops packets to port 80, before they come to Services (FW136)") {
		t.Errorf("the screen doesn't say it:\n%s", b.String())
	}
}

// TestModeUnknown: where a node's mode isn't known, the screen says why.
func TestModeUnknown(t *testing.T) {
	why := "n2: pods/exec is forbidden"
	for name, c := range map[string]struct {
		in   Input
		says bool
	}{
		"one isn't": {Input{Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}, Modes: map[string]string{"n1": "ebpf"}, NotAsked: []string{why}}, true},
		"all are":   {Input{Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}, Modes: map[string]string{"n1": "ebpf"}, NotAsked: []string{why}}, false},
	} {
		var out strings.Builder
		if err := Write(&out, c.in); err != nil || strings.Contains(out.String(), why) != c.says {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}
