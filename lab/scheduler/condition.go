package scheduler

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// report says on the pod why no node takes it. The pod is tried again when a
// node changes.
func (s *Scheduler) report(ctx context.Context, pod *corev1.Pod, why unschedulableError) error {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message == why.message {
			return nil
		}
	}
	// Merged by type (strategic merge), so that others' conditions stay.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now(),
			Reason: corev1.PodReasonUnschedulable, Message: why.message,
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode condition: %w", err)
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("set condition PodScheduled: %w", err)
	}
	s.events.Event(pod, corev1.EventTypeWarning, "FailedScheduling", why.message)
	return nil
}
