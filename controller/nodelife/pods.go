package nodelife

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// markPods makes the Pods on a node not ready, so that their Services leave them
// out. When the node is back, those are ready again that nobody else has judged
// meanwhile: a plain machine has no kubelet that would.
func (c *Controller) markPods(ctx context.Context, node string, silent bool) error {
	list, err := c.cluster.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	var errs []error
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != node || !markPod(pod, silent, metav1.Now()) {
			continue
		}
		if _, err := c.cluster.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("set condition of Pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// markPod reports whether it changed the Pod.
func markPod(pod *corev1.Pod, silent bool, now metav1.Time) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		switch {
		case c.Type != corev1.PodReady:
			continue
		case silent && c.Status == corev1.ConditionTrue:
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, silentReason, "the agent of its node is silent"
		case !silent && c.Status == corev1.ConditionFalse && c.Reason == silentReason:
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
		default:
			return false
		}
		c.LastTransitionTime = now
		return true
	}
	return false
}
