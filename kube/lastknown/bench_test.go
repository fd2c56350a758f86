package lastknown

import (
	"fmt"
	"log/slog"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/kube"
)

// BenchmarkFirstList measures an agent's first list of the API, which an empty store saves:
// 10,000 EndpointSlices of five endpoints each, in the order in which the API lists them.
func BenchmarkFirstList(b *testing.B) {
	list := make([]*discoveryv1.EndpointSlice, 10_000)
	for i := range list {
		list[i] = fiveEndpoints(fmt.Sprintf("web-%05d", i))
	}
	sink := kube.Sink[*discoveryv1.EndpointSlice]{
		Set: func(*discoveryv1.EndpointSlice) {}, Delete: func(types.NamespacedName) {}, Synced: func() {},
	}
	b.ReportAllocs()
	for b.Loop() {
		store, err := Open(b.TempDir(), "n1", slog.Default())
		if err != nil {
			b.Fatal(err)
		}
		k := newKeeper(store, "endpointslices", sink, func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} }, slog.Default())
		for _, s := range list {
			k.set(s)
		}
		k.complete() // the list is whole
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func fiveEndpoints(name string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "0fb0a1c7-6b6a-4b3f-9df0-5f2f0e5f1b2a",
		Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 5 {
		node, ready := fmt.Sprintf("worker-%d", i), true
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.7", i)}, NodeName: &node, Zone: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}})
	}
	return s
}
