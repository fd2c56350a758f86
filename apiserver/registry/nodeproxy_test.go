package registry

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCredentialsStay: what a user shows the API server never reaches a node.
func TestCredentialsStay(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Authorization", "Cookie", "Impersonate-User", "Impersonate-Extra-Scope", "X-Remote-User", "Accept"} {
		req.Header.Set(name, "secret")
	}
	if got := withoutCredentials(req).Header; len(got) != 1 || got.Get("Accept") == "" {
		t.Errorf("a node gets %v", got)
	}
	if req.Header.Get("Authorization") == "" {
		t.Error("the request itself was changed")
	}
}

// TestWayToAgents: by the port that the Node names, or the socket on this machine; a Node
// that says nothing of it can't be asked.
func TestWayToAgents(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	r := &nodeProxyREST{agents: (NodeAgents{})}
	if _, _, err := r.way(node); err == nil {
		t.Error("a node without an agent is asked")
	}
	r.agents.Socket = func(name string) string { return map[string]string{"n1": "/run/x"}[name] }
	if at, _, err := r.way(node); err != nil || at.String() != "http://agent" {
		t.Errorf("by its socket: %v, %v", at, err)
	}
	node.Name = "n2"
	node.Annotations = map[string]string{AgentPortAnnotation: "10261"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n2"}, {Type: corev1.NodeInternalIP, Address: "fd00::2"}}
	if _, _, err := r.way(node); err == nil {
		t.Error("an agent is asked without knowing it by its certificate")
	}
	for _, port := range []string{"0", "70000", "10261/../x", ""} {
		node.Annotations[AgentPortAnnotation] = port
		if at, _, err := r.way(node); err == nil {
			t.Errorf("port %q is asked at %s", port, at)
		}
	}
}
