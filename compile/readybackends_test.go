package compile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/model"
)

// TestTakersOfHeadless: a Service without a VIP has endpoints all the same, and
// they are chosen as for any other.
func TestTakersOfHeadless(t *testing.T) {
	yes, no, name, port := true, false, "http", int32(8080)
	c := New(Config{})
	c.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
	})
	c.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "a", Name: "s-1", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
			{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		},
	})
	got := c.ReadyBackends(types.NamespacedName{Namespace: "a", Name: "s"}, "http", model.TCP)
	if len(got) != 1 || got[0].Addr.String() != "10.0.0.1" || got[0].Port != 8080 {
		t.Errorf("takers are %v", got)
	}
	if got := c.ReadyBackends(types.NamespacedName{Namespace: "a", Name: "s"}, "other", model.TCP); len(got) != 0 {
		t.Errorf("takers of a port that isn't there: %v", got)
	}
}
