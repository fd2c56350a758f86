package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plan is what to do for a Deployment now: how many pods of the current
// template to create, and which pods to delete. What comes after follows from
// what these do.
type plan struct {
	create int
	remove []*corev1.Pod
}

// state is a Deployment with its pods, those that are terminating or finished
// left out.
type state struct {
	deployment  *appsv1.Deployment
	current     []*corev1.Pod // of the current template
	old         []*corev1.Pod // of earlier ones
	terminating int
	now         time.Time
}

// plan decides. As in Kubernetes, a rolling update keeps the number of pods at
// most at replicas + maxSurge and the number of available ones at least at
// replicas - maxUnavailable; Recreate waits until the old pods are gone.
func (s state) plan() (plan, error) {
	replicas := int(*s.deployment.Spec.Replicas)
	if surplus := len(s.current) - replicas; surplus > 0 {
		return plan{remove: s.leastUseful(s.current)[:surplus]}, nil
	}
	total := len(s.current) + len(s.old)
	switch {
	case s.deployment.Spec.Paused: // still scaled, in what it has
		return plan{create: max(0, replicas-total), remove: s.leastUseful(s.old)[:max(0, total-replicas)]}, nil
	case s.deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		if len(s.old) > 0 || s.terminating > 0 && len(s.current) == 0 {
			return plan{remove: s.old}, nil
		}
		return plan{create: replicas - len(s.current)}, nil
	}
	surge, unavailable, err := limits(s.deployment, replicas)
	if err != nil {
		return plan{}, err
	}
	return plan{
		create: max(0, min(replicas-len(s.current), replicas+surge-total)),
		remove: s.removableOld(replicas-unavailable, total),
	}, nil
}

// removableOld are the old pods that can go: those that aren't available cost
// nothing as long as the pods that may yet become available suffice; of those
// that are, as many as leave the wanted number available.
func (s state) removableOld(wanted, total int) []*corev1.Pod {
	currentAvailable := s.countAvailable(s.current)
	unavailableCurrent := len(s.current) - currentAvailable
	oldAvailable := s.countAvailable(s.old)
	idle := min(len(s.old)-oldAvailable, max(0, total-wanted-unavailableCurrent))
	busy := min(oldAvailable, max(0, currentAvailable+oldAvailable-wanted))
	ordered := s.leastUseful(s.old)
	return slices.Concat(ordered[:idle], ordered[len(ordered)-oldAvailable:][:busy])
}

// limits are maxSurge, rounded up, and maxUnavailable, rounded down; not both 0.
func limits(d *appsv1.Deployment, replicas int) (surge, unavailable int, err error) {
	quarter := intstr.FromString("25%")
	maxSurge, maxUnavailable := &quarter, &quarter
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		maxSurge, maxUnavailable = cmp.Or(r.MaxSurge, &quarter), cmp.Or(r.MaxUnavailable, &quarter)
	}
	surge, err = intstr.GetScaledValueFromIntOrPercent(maxSurge, replicas, true)
	if err != nil {
		return 0, 0, fmt.Errorf("spec.strategy.rollingUpdate.maxSurge: %w", err)
	}
	unavailable, err = intstr.GetScaledValueFromIntOrPercent(maxUnavailable, replicas, false)
	if err != nil {
		return 0, 0, fmt.Errorf("spec.strategy.rollingUpdate.maxUnavailable: %w", err)
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, replicas), nil
}

// leastUseful orders pods by how little is lost with them: without a node, not
// running, not ready, not available, youngest.
func (s state) leastUseful(pods []*corev1.Pod) []*corev1.Pod {
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
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
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
	return time.Duration(s.deployment.Spec.MinReadySeconds) * time.Second
}

func (s state) countAvailable(pods []*corev1.Pod) int {
	n := 0
	for _, p := range pods {
		if s.available(p) {
			n++
		}
	}
	return n
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
