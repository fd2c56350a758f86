package ownnode

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
	VersionAnnotation = "fairway.dev/version"
	modeAnnotation    = endpointhealth.ModeAnnotation
)

// About is what the Node of a machine says of its agent.
type About struct{ Version, Mode string }

// kubeletVersion is what `kubectl get nodes` shows.
func (n About) kubeletVersion() string { return "fairway-" + n.Version }

// annotate has the Node say which version and mode its agent has.
func (n About) annotate(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node) (*corev1.Node, error) {
	if node.Annotations[VersionAnnotation] == n.Version && node.Annotations[modeAnnotation] == n.Mode {
		return node, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{VersionAnnotation: n.Version, modeAnnotation: n.Mode},
	}})
	if err != nil {
		return nil, err
	}
	return nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}
