package replicaset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// state is a ReplicaSet with its pods.
type state struct {
	set         *appsv1.ReplicaSet
	active      []*corev1.Pod // neither finished nor terminating
	terminating int
	now         time.Time
}

func observe(set *appsv1.ReplicaSet, pods []*corev1.Pod) state {
	s := state{set: set, now: time.Now()}
	for _, p := range pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.DeletionTimestamp != nil:
			s.terminating++
		default:
			s.active = append(s.active, p)
		}
	}
	return s
}

// leastUseful orders the active pods by how little is lost with them: without a
// node, not running, not ready, not available, youngest.
func (s state) leastUseful() []*corev1.Pod {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.Spec.NodeName == "":
			return 0
		case p.Status.Phase != corev1.PodRunning:
			return 1
		case readySince(p) == nil:
			return 2
		case !s.available(p):
			return 3
		}
		return 4
	}
	return slices.SortedFunc(slices.Values(s.active), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// available: ready for minReadySeconds.
func (s state) available(p *corev1.Pod) bool {
	since := readySince(p)
	return since != nil && !s.now.Before(since.Add(s.minReady()))
}

func (s state) minReady() time.Duration {
	return time.Duration(s.set.Spec.MinReadySeconds) * time.Second
}

// recheck is when the next pod will have been ready for long enough; 0 is never.
func (s state) recheck() time.Duration {
	var soonest time.Duration
	for _, p := range s.active {
		since := readySince(p)
		if since == nil {
			continue
		}
		if d := since.Add(s.minReady()).Sub(s.now); d > 0 && (soonest == 0 || d < soonest) {
			soonest = d
		}
	}
	return soonest
}

// status is what the ReplicaSet's status shall say; failed is why pods could not
// be created or deleted.
func (s state) status(failed error) appsv1.ReplicaSetStatus {
	terminating := int32(s.terminating)
	status := appsv1.ReplicaSetStatus{
		Replicas: int32(len(s.active)), TerminatingReplicas: &terminating,
		ObservedGeneration: s.set.Generation, Conditions: s.conditions(failed),
	}
	template := labels.SelectorFromSet(s.set.Spec.Template.Labels)
	for _, p := range s.active {
		if template.Matches(labels.Set(p.Labels)) {
			status.FullyLabeledReplicas++
		}
		if readySince(p) != nil {
			status.ReadyReplicas++
		}
		if s.available(p) {
			status.AvailableReplicas++
		}
	}
	return status
}

// conditions sets or clears ReplicaFailure.
func (s state) conditions(failed error) []appsv1.ReplicaSetCondition {
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	if failed == nil {
		return slices.DeleteFunc(slices.Clone(s.set.Status.Conditions), isFailure)
	}
	if slices.ContainsFunc(s.set.Status.Conditions, isFailure) {
		return s.set.Status.Conditions
	}
	reason := "FailedCreate"
	if len(s.active) > int(*s.set.Spec.Replicas) {
		reason = "FailedDelete"
	}
	return append(slices.Clone(s.set.Status.Conditions), appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason,
		Message: failed.Error(), LastTransitionTime: metav1.NewTime(s.now),
	})
}

// readySince is when the pod became ready, nil if it isn't.
func readySince(p *corev1.Pod) *time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	return nil
}
