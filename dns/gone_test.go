package dns

import (
	"net/netip"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestMachineGone: the name of a headless Service leads to endpoints on machines that are there,
// and to all if there is no such endpoint. An endpoint's own name goes on leading to it.
func TestMachineGone(t *testing.T) {
	x := NewIndex(IndexConfig{Zone: "cluster.local", NodeName: "m1"})
	x.SetService(headlessService("db"))
	here, there, port, name := "m1", "m2", int32(5432), "sql"
	first, second := "first", "second"
	x.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "db-a", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.1.1"}, NodeName: &here, Hostname: &first},
			{Addresses: []string{"10.244.2.1"}, NodeName: &there, Hostname: &second},
			{Addresses: []string{"10.77.0.12"}},
		},
	})
	x.Synced()
	at := serve(t, x)
	for _, c := range []struct {
		what string
		gone []string
		want []string
	}{
		{"nobody", nil, []string{"10.244.1.1", "10.244.2.1", "10.77.0.12"}},
		{"m2", []string{"m2"}, []string{"10.244.1.1"}},
		{"this one, which it can't be", []string{"m1"}, []string{"10.244.1.1", "10.244.2.1", "10.77.0.12"}},
	} {
		var addresses []netip.Addr
		if len(c.gone) > 0 {
			addresses = []netip.Addr{netip.MustParseAddr("10.77.0.12")}
		}
		x.SetGone(c.gone, addresses)
		var want []string
		for _, a := range c.want {
			want = append(want, "5 A "+a)
		}
		slices.Sort(want)
		if _, got := dig(t, at, "db.default.svc.cluster.local"); !slices.Equal(got, want) {
			t.Errorf("%s gone: %v, want %v", c.what, got, want)
		}
		if _, got := dig(t, at, "second.db.default.svc.cluster.local"); !slices.Equal(got, []string{"5 A 10.244.2.1"}) {
			t.Errorf("%s gone: the endpoint's own name leads to %v", c.what, got)
		}
	}
	x.DeleteSlice(types.NamespacedName{Namespace: "default", Name: "db-a"})
	x.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "db-b", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.2.1"}, NodeName: &there}},
	})
	x.SetGone([]string{"m2"}, nil)
	if _, got := dig(t, at, "db.default.svc.cluster.local"); !slices.Equal(got, []string{"5 A 10.244.2.1"}) {
		t.Errorf("all there is is gone: %v", got)
	}
}
