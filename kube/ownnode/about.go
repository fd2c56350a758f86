package ownnode

import (
	"context"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Annotations of a Node that the agent registered.
const (
	VersionAnnotation = "fairway.dev/version"
	// ModeAnnotation is the data plane that the agent runs. Only plain machines have it.
	ModeAnnotation = "fairway.dev/mode"
	// PortAnnotation is the port at which the agent answers API servers.
	PortAnnotation = "fairway.dev/agent-port"
)

// About is what the Node of a machine says of its agent.
type About struct {
	Version, Mode string
	Port          uint16 // at which it answers API servers; 0 if it doesn't
}

// port is the annotation's value; nil takes it away.
func (n About) port() *string {
	if n.Port == 0 {
		return nil
	}
	text := strconv.Itoa(int(n.Port))
	return &text
}

// kubeletVersion is what `kubectl get nodes` shows.
func (n About) kubeletVersion() string { return "fairway-" + n.Version }

// annotate has the Node say which version and mode its agent has, and where it answers.
func (n About) annotate(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node) (*corev1.Node, error) {
	port := n.port()
	told, tells := node.Annotations[PortAnnotation]
	if node.Annotations[VersionAnnotation] == n.Version && node.Annotations[ModeAnnotation] == n.Mode && tells == (port != nil) && (!tells || told == *port) {
		return node, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{VersionAnnotation: n.Version, ModeAnnotation: n.Mode, PortAnnotation: port},
	}})
	if err != nil {
		return nil, err
	}
	return nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}
