package overview

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/endpoint/check"
)

func TestDifferentPorts(t *testing.T) {
	published := func(service, machine, name string, port int32) discoveryv1.EndpointSlice {
		tcp := corev1.ProtocolTCP
		return discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: service, check.NodeLabel: machine}},
			Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		}
	}
	got := differentPorts([]discoveryv1.EndpointSlice{
		published("slip", "a", "", 8000), published("slip", "b", "", 8001), published("slip", "c", "", 8000),
		published("two", "a", "http", 80), published("two", "a", "https", 443), published("two", "b", "http", 80),
		published("both", "a", "", 80), published("both", "a", "", 80), published("both", "b", "", 80), // both families
		published("pair", "a", "", 80), published("pair", "a", "", 81), published("pair", "b", "", 81), published("pair", "b", "", 80),
		{},
	})
	want := []string{"service default/slip: machines publish different TCP ports under this name: 8000 (a, c), 8001 (b)"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
