package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// writeStatus tells the API what has become of the pod, if it changed; false
// if that has to be tried again.
func (w *worker) writeStatus(ctx context.Context) bool {
	if _, is := w.kubelet.cutOff(w.node.Name); is {
		return true // the worker is told when it is over
	}
	status := w.currentStatus()
	if equality.Semantic.DeepEqual(status, w.status) {
		return true
	}
	patch, err := statusPatch(w.uid, &status)
	if err != nil {
		w.fail(fmt.Errorf("encode status: %w", err))
		return false
	}
	_, err = w.kubelet.client.CoreV1().Pods(w.pod.Namespace).Patch(ctx, w.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		w.status = status // gone pods have no status, and say so soon
		return true
	case ctx.Err() != nil:
		return false
	default:
		w.fail(fmt.Errorf("write status: %w", err))
		return false
	}
}

// statusPatch writes a status. Addresses are replaced: a merge would keep those that a
// pod had before its node was switched off.
func statusPatch(uid types.UID, status *corev1.PodStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	for _, list := range []string{"podIPs", "hostIPs"} {
		if addresses, ok := fields[list].([]any); ok {
			fields[list] = append(addresses, map[string]any{"$patch": "replace"})
		}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid}, // another pod of the same name is a conflict
		"status":   fields,
	})
}

// currentStatus is the pod's status now.
func (w *worker) currentStatus() corev1.PodStatus {
	s := corev1.PodStatus{
		HostIP:    w.node.IPv4().String(),
		StartTime: &w.started,
		Phase:     w.phase(),
	}
	for _, a := range w.node.Addresses {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: a.String()})
	}
	for _, a := range w.sandbox.addresses() {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: a.String()})
	}
	s.PodIP = s.PodIPs[0].IP
	ready, finished := true, s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	s.InitContainerStatuses = w.initStatuses()
	for i := range w.pod.Spec.Containers {
		cs := w.containerStatus(&w.pod.Spec.Containers[i])
		ready = ready && cs.Ready
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
	}
	reason := ""
	if finished {
		reason = "PodCompleted"
	} else if !ready {
		reason = "ContainersNotReady"
	}
	s.Conditions = []corev1.PodCondition{
		w.condition(corev1.PodReadyToStartContainers, !finished, ""),
		w.condition(corev1.PodInitialized, w.prepared, "ContainersNotInitialized"),
		w.condition(corev1.PodReady, ready && w.gatesOpen(), reason),
		w.condition(corev1.ContainersReady, ready, reason),
		w.condition(corev1.PodScheduled, true, ""),
	}
	return s
}

func (w *worker) containerStatus(spec *corev1.Container) corev1.ContainerStatus {
	for _, c := range w.containers {
		if c.spec.Name == spec.Name {
			return c.status()
		}
	}
	return w.unstarted(spec)
}

// phase is what Kubernetes makes of containers' states.
func (w *worker) phase() corev1.PodPhase {
	if !w.prepared {
		return w.initPhase()
	}
	if len(w.containers) < len(w.pod.Spec.Containers) {
		return corev1.PodPending
	}
	failed := false
	for _, c := range w.containers {
		state, _ := c.state()
		if state.Terminated == nil || restarts(w.pod.Spec.RestartPolicy, state.Terminated.ExitCode) && w.pod.DeletionTimestamp == nil {
			return corev1.PodRunning
		}
		failed = failed || state.Terminated.ExitCode != 0
	}
	if failed {
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func restarts(policy corev1.RestartPolicy, code int32) bool {
	return policy != corev1.RestartPolicyNever && (policy != corev1.RestartPolicyOnFailure || code != 0)
}

// gatesOpen says whether the conditions that the pod's readiness gates name are
// true; others write them.
func (w *worker) gatesOpen() bool {
	for _, g := range w.pod.Spec.ReadinessGates {
		open := false
		for _, c := range w.pod.Status.Conditions {
			open = open || c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		}
		if !open {
			return false
		}
	}
	return true
}

// condition keeps the transition time of a condition that hasn't changed.
func (w *worker) condition(kind corev1.PodConditionType, value bool, reason string) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason,
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)), // as the API keeps it
	}
	if value {
		c.Status, c.Reason = corev1.ConditionTrue, ""
	}
	for _, before := range w.status.Conditions {
		if before.Type == kind && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	return c
}
