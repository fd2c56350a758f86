package explain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/compile"
)

// TestLinesNameNodes: where nodes do different things with a packet, lines say which nodes; where all
// do the same, none does.
func TestLinesNameNodes(t *testing.T) {
	n1 := "n1"
	o := &Objects{
		Services: []*corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.7", ExternalIPs: []string{"192.0.2.7"}, Ports: []corev1.ServicePort{{Port: 80}},
				ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			},
		}},
		Slices: []*discoveryv1.EndpointSlice{{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, NodeName: &n1}},
			Ports: []discoveryv1.EndpointPort{{Name: new(string), Port: new(int32)}},
		}},
	}
	*o.Slices[0].Ports[0].Port = 80
	for _, name := range []string{"n1", "n2", "n3"} {
		o.Nodes = append(o.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for typed, want := range map[string][]string{
		"192.0.2.7:80": {"from outside, on n1: FORWARDED to its only endpoint", "from outside, on n2, n3: DROP"},
		"10.96.0.7:80": {"10.96.0.7:80/tcp, from outside: FORWARDED"},
	} {
		q, err := ParseQuestion(typed, "", "shop")
		if err != nil {
			t.Fatal(err)
		}
		r, err := FromObjects(q, o, compile.Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(r.Answer, part) {
				t.Errorf("%s: it lacks %q:\n%s", typed, part, r.Answer)
			}
		}
	}
}
