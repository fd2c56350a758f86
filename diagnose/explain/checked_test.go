package explain

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFailingChecks: of an endpoint that isn't ready it is said what its check found, and who.
func TestFailingChecks(t *testing.T) {
	no, yes := false, true
	port, node := int32(8000), "m1"
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	report := func(name, node string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Annotations: map[string]string{"fairway.dev/reasons": `{"10.77.0.12":"connection refused"}`},
				Labels: map[string]string{"fairway.dev/health-of": "web", discoveryv1.LabelManagedBy: "health.fairway.dev"},
			},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.77.0.12"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &no}}},
			Ports:     []discoveryv1.EndpointPort{{Port: &port}},
		}
	}
	own := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.77.0.12"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
			{Addresses: []string{"10.77.0.13"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
		},
	}
	got := endpointsOf(service, &Objects{Slices: []*discoveryv1.EndpointSlice{own, report("a", "m3"), report("b", "m1")}})
	want := map[netip.Addr]string{netip.MustParseAddr("10.77.0.12"): "by its check: connection refused, seen from m1, m3", netip.MustParseAddr("10.77.0.13"): ""}
	for _, e := range got {
		if e.Detail != want[e.Addr] {
			t.Errorf("%s: %q, want %q", e.Addr, e.Detail, want[e.Addr])
		}
	}
}

// TestOtherWays: where a question is about a Service alone, its outer addresses and node ports are
// named; where it is about one of them or a client, they aren't.
func TestOtherWays(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"},
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}}},
	}
	for typed, want := range map[string]string{
		"svc/web":      "also at 192.0.2.7:80/tcp, node port 30080/tcp: fairway explain 192.0.2.7:80",
		"192.0.2.7:80": "",
	} {
		q, err := ParseQuestion(typed, "", "default")
		if err != nil {
			t.Fatal(err)
		}
		r := newReport(q, service, &Objects{Services: []*corev1.Service{service}})
		if got := strings.Join(r.Notes, "; "); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}
