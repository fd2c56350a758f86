package watch

import (
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/compile"
)

// TestMachineGone: an endpoint on a machine that is gone takes no requests while another one does,
// and the Service is among what has changed.
func TestMachineGone(t *testing.T) {
	w := NewFor(fake.NewClientset(), nil, slog.New(slog.DiscardHandler))
	meta, port := metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, int32(8000)
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	w.happened(nil, service)
	w.happened(nil, &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.77.0.12"}}, {Addresses: []string{"10.77.0.13"}}},
	})
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	w.Take()
	for _, c := range []struct {
		gone []compile.Machine
		want int
	}{
		{[]compile.Machine{{Name: "m3", Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.13")}}}, 1},
		{nil, 2},
	} {
		w.SetGone(c.gone)
		<-w.Changed()
		changes := w.Take()
		if _, moved := changes.Moved[name]; !moved {
			t.Errorf("%v gone: the Service isn't among what has changed", c.gone)
		}
		if takers := w.ReadyBackends(name, &service.Spec.Ports[0]); len(takers) != c.want || takers[0].Addr != netip.MustParseAddr("10.77.0.12") {
			t.Errorf("%v gone: requests go to %v", c.gone, takers)
		}
	}
}
