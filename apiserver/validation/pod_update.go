package validation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodUpdate validates a changed Pod: most of it is fixed once it exists.
func PodUpdate(p, old *corev1.Pod) field.ErrorList {
	allowed := old.Spec.DeepCopy()
	copyImages(allowed.Containers, p.Spec.Containers)
	copyImages(allowed.InitContainers, p.Spec.InitContainers)
	allowed.ActiveDeadlineSeconds = p.Spec.ActiveDeadlineSeconds
	if startsWith(p.Spec.Tolerations, old.Spec.Tolerations) {
		allowed.Tolerations = p.Spec.Tolerations
	}
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil && *g == 1 && old.Spec.TerminationGracePeriodSeconds != nil && *old.Spec.TerminationGracePeriodSeconds < 0 {
		allowed.TerminationGracePeriodSeconds = g
	}
	if len(old.Spec.SchedulingGates) > 0 {
		allowed.SchedulingGates = p.Spec.SchedulingGates
		allowed.NodeSelector, allowed.Affinity = p.Spec.NodeSelector, p.Spec.Affinity
	}
	if equality.Semantic.DeepEqual(&p.Spec, allowed) {
		return nil
	}
	return field.ErrorList{field.Forbidden(specPath, "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"+
		"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
		"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)")}
}

func copyImages(to, from []corev1.Container) {
	for i := range min(len(to), len(from)) {
		to[i].Image = from[i].Image
	}
}

// startsWith says whether nothing of old is missing.
func startsWith(list, old []corev1.Toleration) bool {
	for _, o := range old {
		if !slices.ContainsFunc(list, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, o) }) {
			return false
		}
	}
	return true
}

// PodStatus validates what a node reports of a Pod.
func PodStatus(p, _ *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]bool{}
	for i, podIP := range p.Status.PodIPs {
		path := statusPath.Child("podIPs").Index(i)
		addr, bad := ip(path, podIP.IP)
		errs = append(errs, bad...)
		if len(bad) == 0 && families[addr.Is4()] {
			errs = append(errs, field.Invalid(statusPath.Child("podIPs"), p.Status.PodIPs, "may specify no more than one IP for each IP family"))
		}
		families[addr.Is4()] = true
	}
	if len(p.Status.PodIPs) > 0 && p.Status.PodIP != p.Status.PodIPs[0].IP {
		errs = append(errs, field.Invalid(statusPath.Child("podIPs").Index(0).Child("ip"), p.Status.PodIPs[0].IP, "must be equal to `podIP`"))
	}
	return errs
}
