package kubelet

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/resource"
)

// resourceValue is what a container asks for or may use of a resource, in units of the
// selector's divisor. Where it has no limit, that is what the node has.
func (w *worker) resourceValue(ctx context.Context, spec *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != spec.Name {
		named := w.containerSpec(ref.ContainerName)
		if named == nil {
			return "", fmt.Errorf("resourceFieldRef: the pod has no container %q", ref.ContainerName)
		}
		spec = named
	}
	name, isLimit := strings.CutPrefix(ref.Resource, "limits.")
	if _, limited := spec.Resources.Limits[corev1.ResourceName(name)]; isLimit && !limited {
		node, err := w.kubelet.client.CoreV1().Nodes().Get(ctx, w.node.Name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("resourceFieldRef: %w", err)
		}
		spec = &corev1.Container{Name: spec.Name, Resources: corev1.ResourceRequirements{Limits: node.Status.Allocatable}}
	}
	value, err := resource.ExtractContainerResourceValue(ref, spec)
	if err != nil {
		return "", fmt.Errorf("resourceFieldRef: %w", err)
	}
	return value, nil
}

// containerSpec is the pod's container of that name, nil if it has none.
func (w *worker) containerSpec(name string) *corev1.Container {
	for _, all := range [][]corev1.Container{w.first.Spec.Containers, w.first.Spec.InitContainers} {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
	}
	return nil
}
