package deployment

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status is what the Deployment's status shall say; `kubectl rollout status`
// reads it.
func (s *state) status() (appsv1.DeploymentStatus, error) {
	d := s.deployment
	status := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, CollisionCount: d.Status.CollisionCount, Conditions: slices.Clone(d.Status.Conditions),
	}
	var terminating int32
	for _, set := range s.sets() {
		status.Replicas += set.Status.Replicas
		status.ReadyReplicas += set.Status.ReadyReplicas
		status.AvailableReplicas += set.Status.AvailableReplicas
		if n := set.Status.TerminatingReplicas; n != nil {
			terminating += *n
		}
	}
	status.TerminatingReplicas = &terminating
	status.UnavailableReplicas = max(0, total(s.sets())-status.AvailableReplicas)
	if s.current != nil {
		status.UpdatedReplicas = s.current.Status.Replicas
	}
	_, unavailable, err := limits(d)
	if err != nil {
		return status, err
	}
	if status.AvailableReplicas >= *d.Spec.Replicas-unavailable {
		s.set(&status, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability.")
	} else {
		s.set(&status, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does not have minimum availability.")
	}
	s.setProgressing(&status)
	return status, nil
}

// complete: all pods are of the current template and available.
func complete(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	return status.UpdatedReplicas == *d.Spec.Replicas && status.Replicas == *d.Spec.Replicas &&
		status.AvailableReplicas == *d.Spec.Replicas
}

// setProgressing sets the condition Progressing, whose update time is that of
// the last progress.
func (s *state) setProgressing(status *appsv1.DeploymentStatus) {
	d := s.deployment
	switch {
	case complete(d, *status):
		s.set(status, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable",
			fmt.Sprintf("Deployment %q has successfully progressed.", d.Name))
	case d.Spec.Paused:
		s.set(status, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused")
	case progressed(d.Status, *status):
		s.set(status, appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated",
			fmt.Sprintf("Deployment %q is progressing.", d.Name))
		condition(status, appsv1.DeploymentProgressing).LastUpdateTime = metav1.NewTime(s.now)
	case s.timeLeft() <= 0:
		s.set(status, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded",
			fmt.Sprintf("Deployment %q has timed out progressing.", d.Name))
	}
}

// progressed says whether anything happened that brings the roll-out forward.
func progressed(before, after appsv1.DeploymentStatus) bool {
	c := condition(&before, appsv1.DeploymentProgressing)
	return c == nil || c.Status == corev1.ConditionUnknown ||
		before.ObservedGeneration != after.ObservedGeneration ||
		before.UpdatedReplicas < after.UpdatedReplicas ||
		before.Replicas-before.UpdatedReplicas > after.Replicas-after.UpdatedReplicas ||
		before.ReadyReplicas < after.ReadyReplicas ||
		before.AvailableReplicas < after.AvailableReplicas
}

// timeLeft is how long it takes until the roll-out counts as stuck. One that was
// complete doesn't become so when pods fail later.
func (s *state) timeLeft() time.Duration {
	c := condition(&s.deployment.Status, appsv1.DeploymentProgressing)
	if c == nil || c.Reason == "NewReplicaSetAvailable" || s.deployment.Spec.ProgressDeadlineSeconds == nil {
		return time.Hour
	}
	deadline := c.LastUpdateTime.Add(time.Duration(*s.deployment.Spec.ProgressDeadlineSeconds) * time.Second)
	return deadline.Sub(s.now)
}

// recheck is when to look again although nothing may have changed: when the
// progress deadline passes. 0 is never.
func (s *state) recheck(status appsv1.DeploymentStatus) time.Duration {
	if complete(s.deployment, status) || s.deployment.Spec.Paused {
		return 0
	}
	return max(0, s.timeLeft())
}

func (s *state) set(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, value corev1.ConditionStatus, reason, message string) {
	now := metav1.NewTime(s.now)
	c := condition(status, kind)
	if c == nil {
		status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{Type: kind, LastUpdateTime: now})
		c = &status.Conditions[len(status.Conditions)-1]
	}
	if c.Status != value {
		c.LastTransitionTime = now
	}
	if c.Status != value || c.Reason != reason {
		c.LastUpdateTime = now
	}
	c.Status, c.Reason, c.Message = value, reason, message
}

func condition(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}
