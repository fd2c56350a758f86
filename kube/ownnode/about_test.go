package ownnode

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestNodeSaysVersionAndMode: of the agent that registered it, also when they change.
func TestNodeSaysVersionAndMode(t *testing.T) {
	client := fake.NewClientset()
	for _, about := range []About{{"1.0", "nftables"}, {"1.0", "ebpf"}, {"1.1", "ebpf"}, {"1.1", "ebpf"}} {
		m := Node{Client: client, Name: "here", About: func() About { return about }}
		if err := m.Register(t.Context(), []netip.Addr{netip.MustParseAddr("192.0.2.1")}); err != nil {
			t.Fatal(err)
		}
		node, err := client.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := (About{node.Annotations[VersionAnnotation], node.Annotations[modeAnnotation]}); got != about {
			t.Errorf("the Node says %v, want %v", got, about)
		}
		if got, want := node.Status.NodeInfo.KubeletVersion, "fairway-"+about.Version; got != want {
			t.Errorf("VERSION is %q, want %q", got, want)
		}
	}
}
