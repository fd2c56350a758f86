package node

import (
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/dns"
)

// TestSliceIsMadeAgain: other nodes know this one's server again after somebody has deleted
// its slice, be it that the API fails then.
func TestSliceIsMadeAgain(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
	n := &DNS{
		Config: Config{Options: &Options{Port: 10053}, NodeName: "n1", Client: client, Log: slog.New(slog.NewTextHandler(t.Output(), nil))},
		Index:  dns.NewIndex(dns.IndexConfig{Zone: "cluster.local"}),
		node:   []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}
	publish := func() {
		t.Helper()
		if err := n.publish(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	made, err := slices.Get(t.Context(), n.sliceName().Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Index.SetSlice(made) // as the watch tells
	asked := len(client.Actions())
	publish()
	if now := len(client.Actions()); now != asked {
		t.Errorf("%d requests while nothing has changed", now-asked)
	}
	if err := slices.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.Index.DeleteSlice(n.sliceName())
	if err := client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := n.publish(t.Context(), true); err == nil {
		t.Error("the slice of a Node that isn't there is written")
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	publish()
	if _, err := slices.Get(t.Context(), made.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the slice isn't made again: %v", err)
	}
}
