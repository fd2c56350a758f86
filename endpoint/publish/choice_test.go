package publish

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
)

// TestServiceChooses: a machine publishes endpoints of Services that name it, or all; what
// it has published already stays.
func TestServiceChooses(t *testing.T) {
	m := machine{name: "n1", addresses: []netip.Addr{netip.MustParseAddr("10.77.0.1")}}
	entry := Entry{Source: "web.yaml", Service: types.NamespacedName{Namespace: "default", Name: "web"}, Port: 80, Protocol: corev1.ProtocolTCP}
	for value, want := range map[string]bool{"": false, "*": true, "n1": true, "n2, n1": true, "n2,n11": false} {
		s := service("web", ipv4, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP})
		s.Annotations = map[string]string{check.AnnotationPublishers: value}
		endpoints, problems := m.resolve([]Entry{entry}, s, nil)
		if (len(endpoints) == 1) != want || (len(problems) == 0) != want {
			t.Errorf("%q: %v, %v", value, endpoints, problems)
		}
		if !want && !strings.Contains(problems[0].Error(), "kubectl annotate service web") {
			t.Errorf("%q: what to do isn't said: %v", value, problems[0])
		}
		have := map[string]*discoveryv1.EndpointSlice{sliceName("n1", entry.Service, &entry, m.addresses[0]): {}}
		if endpoints, problems := m.resolve([]Entry{entry}, s, have); len(endpoints) != 1 || len(problems) > 0 {
			t.Errorf("%q, published already: %v, %v", value, endpoints, problems)
		}
	}
}
