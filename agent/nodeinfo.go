package agent

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	endpointhealth "github.com/fairway-net/fairway/endpoint/health"
)

// Annotations of a Node that the agent registered.
const (
	versionAnnotation = "fairway.dev/version"
	modeAnnotation    = endpointhealth.ModeAnnotation
)

// aboutNode is what the Node object of a plain machine says of its agent.
type aboutNode struct{ version, mode string }

// kubeletVersion is what `kubectl get nodes` shows.
func (n aboutNode) kubeletVersion() string { return "fairway-" + n.version }

// annotate has the Node say which version and mode its agent has.
func (n aboutNode) annotate(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node) (*corev1.Node, error) {
	if node.Annotations[versionAnnotation] == n.version && node.Annotations[modeAnnotation] == n.mode {
		return node, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{versionAnnotation: n.version, modeAnnotation: n.mode},
	}})
	if err != nil {
		return nil, err
	}
	return nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}
