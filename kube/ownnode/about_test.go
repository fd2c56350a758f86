package ownnode

import (
	"net/netip"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestNodeSaysVersionAndMode: of the agent that registered it, also when they change.
func TestNodeSaysVersionAndMode(t *testing.T) {
	client := fake.NewClientset()
	for _, about := range []About{{"1.0", "nftables", 0}, {"1.0", "ebpf", 10261}, {"1.1", "ebpf", 10261}, {"1.1", "ebpf", 10262}, {"1.1", "ebpf", 0}} {
		m := Node{Client: client, Name: "here", About: func() About { return about }}
		if err := m.Register(t.Context(), []netip.Addr{netip.MustParseAddr("192.0.2.1")}); err != nil {
			t.Fatal(err)
		}
		node, err := client.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := (About{Version: node.Annotations[VersionAnnotation], Mode: node.Annotations[ModeAnnotation], Port: about.Port}); got != about {
			t.Errorf("the Node says %v, want %v", got, about)
		}
		if got, there := node.Annotations[PortAnnotation]; there != (about.Port != 0) || there && got != strconv.Itoa(int(about.Port)) {
			t.Errorf("the Node says port %q, want %d", got, about.Port)
		}
		if got, want := node.Status.NodeInfo.KubeletVersion, "fairway-"+about.Version; got != want {
			t.Errorf("VERSION is %q, want %q", got, want)
		}
	}
}
