package deployment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plan is what to do for a Deployment now. What comes after follows from what the
// pods do.
type plan struct {
	create   bool  // the ReplicaSet of the present template
	replicas int32 // with so many replicas
	scale    map[types.UID]int32
}

// plan decides. As in Kubernetes, a rolling update keeps the number of pods at
// most at replicas + maxSurge and the number of available ones at least at
// replicas - maxUnavailable; Recreate waits until the old pods are gone; what is
// paused, or scaled in the middle of a rollout, keeps the templates that it has.
func (s *state) plan() (plan, error) {
	p := plan{scale: map[types.UID]int32{}}
	surge, unavailable, err := limits(s.deployment)
	if err != nil {
		return p, err
	}
	switch {
	case s.deployment.Spec.Paused || s.isScaled():
		s.planScaling(&p, surge)
	case s.deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		s.planRecreation(&p)
	default:
		s.planRollout(&p, surge, unavailable)
	}
	return p, nil
}

// isScaled says whether the Deployment wants another number of replicas than when
// its ReplicaSets were scaled last.
func (s *state) isScaled() bool {
	return slices.ContainsFunc(s.active(), func(set *appsv1.ReplicaSet) bool {
		desired, err := strconv.Atoi(set.Annotations[desiredAnnotation])
		return err == nil && desired != int(*s.deployment.Spec.Replicas)
	})
}

// active are the ReplicaSets that have replicas, the largest first and of equal
// ones the newest.
func (s *state) active() []*appsv1.ReplicaSet {
	sets := slices.DeleteFunc(s.sets(), func(set *appsv1.ReplicaSet) bool { return *set.Spec.Replicas == 0 })
	slices.Reverse(sets)
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas) })
	return sets
}

// planScaling scales without a rollout: one ReplicaSet alone, several in
// proportion to what they have.
func (s *state) planScaling(p *plan, surge int32) {
	replicas := *s.deployment.Spec.Replicas
	active := s.active()
	if len(active) == 0 {
		if all := s.sets(); len(all) > 0 {
			p.scale[all[len(all)-1].UID] = replicas
		}
		return
	}
	if len(active) == 1 {
		p.scale[active[0].UID] = replicas
		return
	}
	allowed := replicas
	if replicas > 0 && s.deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		allowed += surge
	}
	missing := allowed - total(active)
	left := missing
	for _, set := range active {
		share := s.share(set, allowed)
		if missing > 0 {
			share = max(0, min(share, left))
		} else {
			share = min(0, max(share, left))
		}
		left -= share
		p.scale[set.UID] = max(0, *set.Spec.Replicas+share)
	}
	p.scale[active[0].UID] = max(0, p.scale[active[0].UID]+left)
}

// share is by how much a ReplicaSet changes if it keeps its part of all replicas.
func (s *state) share(set *appsv1.ReplicaSet, allowed int32) int32 {
	before, err := strconv.Atoi(set.Annotations[maxAnnotation])
	if err != nil || before <= 0 {
		before = int(max(1, s.deployment.Status.Replicas))
	}
	return int32(math.Round(float64(*set.Spec.Replicas)*float64(allowed)/float64(before))) - *set.Spec.Replicas
}

// planRecreation starts the new pods when the old ones are gone.
func (s *state) planRecreation(p *plan) {
	gone := true
	for _, set := range s.old {
		p.scale[set.UID] = 0
		terminating := set.Status.TerminatingReplicas
		if *set.Spec.Replicas > 0 || set.Status.Replicas > 0 || terminating != nil && *terminating > 0 || set.Status.ObservedGeneration < set.Generation {
			gone = false
		}
	}
	if gone {
		s.setCurrent(p, *s.deployment.Spec.Replicas)
	}
}

// planRollout adds new replicas as far as the surge allows, and takes old ones as
// far as enough are available.
func (s *state) planRollout(p *plan, surge, unavailable int32) {
	replicas := *s.deployment.Spec.Replicas
	all := total(s.sets())
	var current, starting int32
	if s.current != nil {
		current = *s.current.Spec.Replicas
		starting = current - s.current.Status.AvailableReplicas
	}
	switch {
	case current > replicas:
		s.setCurrent(p, replicas)
		return
	case current < replicas:
		if add := max(0, min(replicas+surge-all, replicas-current)); add > 0 || s.current == nil {
			s.setCurrent(p, current+add)
			return
		}
	}
	// As many as stay available even if none of the new ones that start does.
	removable := all - (replicas - unavailable) - starting
	if removable <= 0 {
		return
	}
	taken := s.takeUnavailable(p, removable)
	s.takeAvailable(p, min(removable-taken, available(s.sets())-(replicas-unavailable)))
}

// setCurrent gives the ReplicaSet of the present template its replicas.
func (s *state) setCurrent(p *plan, replicas int32) {
	if s.current == nil {
		p.create, p.replicas = true, replicas
		return
	}
	p.scale[s.current.UID] = replicas
}

// takeUnavailable scales the old ReplicaSets down by those pods that aren't
// available: they cost nothing. It returns how many those are.
func (s *state) takeUnavailable(p *plan, most int32) int32 {
	var taken int32
	for _, set := range s.old {
		n := max(0, min(most-taken, *set.Spec.Replicas-set.Status.AvailableReplicas))
		p.scale[set.UID] = *set.Spec.Replicas - n
		taken += n
	}
	return taken
}

// takeAvailable scales the old ReplicaSets down further, oldest first.
func (s *state) takeAvailable(p *plan, most int32) {
	for _, set := range s.old {
		if most <= 0 {
			return
		}
		n := min(most, p.scale[set.UID])
		p.scale[set.UID] -= n
		most -= n
	}
}

func total(sets []*appsv1.ReplicaSet) (n int32) {
	for _, set := range sets {
		n += *set.Spec.Replicas
	}
	return n
}

// available are the pods that will be available. A status may be older than the
// spec: what is to go counts no more.
func available(sets []*appsv1.ReplicaSet) (n int32) {
	for _, set := range sets {
		n += min(set.Status.AvailableReplicas, *set.Spec.Replicas)
	}
	return n
}

// limits are maxSurge, rounded up, and maxUnavailable, rounded down; not both 0.
func limits(d *appsv1.Deployment) (surge, unavailable int32, err error) {
	replicas := int(*d.Spec.Replicas)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return 0, 0, nil
	}
	quarter := intstr.FromString("25%")
	maxSurge, maxUnavailable := &quarter, &quarter
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		maxSurge, maxUnavailable = cmp.Or(r.MaxSurge, &quarter), cmp.Or(r.MaxUnavailable, &quarter)
	}
	s, err := intstr.GetScaledValueFromIntOrPercent(maxSurge, replicas, true)
	if err != nil {
		return 0, 0, fmt.Errorf("spec.strategy.rollingUpdate.maxSurge: %w", err)
	}
	u, err := intstr.GetScaledValueFromIntOrPercent(maxUnavailable, replicas, false)
	if err != nil {
		return 0, 0, fmt.Errorf("spec.strategy.rollingUpdate.maxUnavailable: %w", err)
	}
	if s == 0 && u == 0 {
		u = 1
	}
	return int32(s), int32(min(u, replicas)), nil
}
