package apiserver

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTargets: what Prometheus gets is a list, in its form, of each Node that has an address.
func TestTargets(t *testing.T) {
	node := func(name string, addresses ...corev1.NodeAddress) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: addresses}}
	}
	internal := func(a string) corev1.NodeAddress { return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a} }
	nodes := []corev1.Node{
		node("m1", corev1.NodeAddress{Type: corev1.NodeHostName, Address: "m1"}, internal("10.77.0.11"), internal("fd00:77::11")),
		node("m2", internal("fd00:77::12")),
		node("m3"),
	}
	for _, c := range []struct {
		nodes []corev1.Node
		want  string
	}{
		{nodes, `[{"targets":["10.77.0.11:10249"],"labels":{"instance":"m1"}},{"targets":["[fd00:77::12]:10249"],"labels":{"instance":"m2"}}]`},
		{nil, `[]`},
	} {
		got, err := json.Marshal(targetsOf(c.nodes, metricsPort))
		if err != nil || string(got) != c.want {
			t.Errorf("%v, %s, want %s", err, got, c.want)
		}
	}
}
