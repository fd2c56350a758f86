package apiserver

import (
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestSlicesOfTheAPI: the slices of the Service kubernetes follow the servers and are put
// right when somebody harms them, and all slices of the namespace are listed only when the
// servers change.
func TestSlicesOfTheAPI(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	p := &presence{api: client}
	write := func(servers ...string) {
		t.Helper()
		var list []netip.AddrPort
		for _, s := range servers {
			list = append(list, netip.MustParseAddrPort(s))
		}
		if err := p.writeSlices(ctx, apiSlices(list)); err != nil {
			t.Fatal(err)
		}
	}
	inPlace := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	has := func(names ...string) {
		t.Helper()
		list, err := inPlace.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != len(names) {
			t.Fatalf("%d slices, want %q: %v", len(list.Items), names, err)
		}
		for _, name := range names {
			s, err := inPlace.Get(ctx, name, metav1.GetOptions{})
			if err != nil || s.Labels[discoveryv1.LabelServiceName] != "kubernetes" || len(s.Endpoints) == 0 {
				t.Errorf("slice %s: %v, %v", name, s, err)
			}
		}
	}
	lists := func() (n int) {
		for _, a := range client.Actions() {
			if a.Matches("list", "endpointslices") {
				n++
			}
		}
		return n
	}
	write("192.0.2.1:6443")
	has("kubernetes")
	before := lists()
	for range 10 {
		write("192.0.2.1:6443")
	}
	if n := lists() - before; n > 0 {
		t.Errorf("%d lists while nothing changed", n)
	}

	for name, harm := range map[string]func() error{
		"deleted": func() error { return inPlace.Delete(ctx, "kubernetes", metav1.DeleteOptions{}) },
		"emptied": func() error {
			s, err := inPlace.Get(ctx, "kubernetes", metav1.GetOptions{})
			if err != nil {
				return err
			}
			s.Endpoints = nil
			_, err = inPlace.Update(ctx, s, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := harm(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		write("192.0.2.1:6443")
		has("kubernetes")
	}

	write("192.0.2.1:6443", "[2001:db8::1]:6443")
	has("kubernetes-ipv4-6443", "kubernetes-ipv6-6443")
	write("[2001:db8::1]:6443")
	has("kubernetes")
}
