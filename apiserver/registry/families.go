package registry

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairway-net/fairway/apiserver/upstream"
)

var (
	specPath     = field.NewPath("spec")
	policyPath   = specPath.Child("ipFamilyPolicy")
	familiesPath = specPath.Child("ipFamilies")
	ipsPath      = specPath.Child("clusterIPs")
)

// initFamilies decides a Service's IP families by the rules of KEP-563: what
// the user says, else what the given addresses imply, else the cluster's
// default; and never silently changes the number of families.
func initFamilies(svc, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || keepsPreferDualStack(svc, old) {
		return nil
	}
	defaultPolicy(svc, old)
	if errs := upstream.ServiceClusterIPs(svc, old); len(errs) > 0 {
		return errs
	}
	errs := changeOfFamilies(svc, old)
	if !wantsDualStack(svc) {
		if len(svc.Spec.ClusterIPs) == 2 {
			errs = append(errs, field.Invalid(policyPath, svc.Spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
		}
		if len(svc.Spec.IPFamilies) == 2 {
			errs = append(errs, field.Invalid(policyPath, svc.Spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
		}
	}
	errs = append(errs, inferFamilies(svc, cluster)...)
	if len(errs) > 0 {
		return errs
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone && len(svc.Spec.Selector) == 0 {
		// Endpoints of a headless Service without selector come from
		// elsewhere: the families the cluster has don't bind them.
		completeFamilies(svc, cluster[0], true)
		return nil
	}
	if *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(cluster) < 2 {
		errs = append(errs, field.Invalid(policyPath, svc.Spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, f := range svc.Spec.IPFamilies {
		if !slices.Contains(cluster, f) {
			errs = append(errs, field.Invalid(familiesPath.Index(i), f, "not configured on this cluster"))
		}
	}
	if len(errs) == 0 {
		completeFamilies(svc, cluster[0], len(cluster) == 2)
	}
	return errs
}

// keepsPreferDualStack recognises an update that leaves a PreferDualStack
// Service's addresses alone. It must not gain or lose one just because the
// cluster's CIDRs have changed since.
func keepsPreferDualStack(svc, old *corev1.Service) bool {
	if old == nil || old.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	prefer := func(s *corev1.Service) bool {
		return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	}
	return prefer(svc) && prefer(old) && svc.Spec.ClusterIP == old.Spec.ClusterIP &&
		slices.Equal(svc.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(svc.Spec.IPFamilies, old.Spec.IPFamilies)
}

func defaultPolicy(svc, old *corev1.Service) {
	if svc.Spec.IPFamilyPolicy != nil {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		policy = *old.Spec.IPFamilyPolicy
	case svc.Spec.ClusterIP == corev1.ClusterIPNone && len(svc.Spec.Selector) == 0:
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	svc.Spec.IPFamilyPolicy = &policy
}

func wantsDualStack(svc *corev1.Service) bool {
	return svc.Spec.IPFamilyPolicy != nil && *svc.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack
}

// changeOfFamilies handles an update from two families to one: asking for
// SingleStack is enough, and is also required.
func changeOfFamilies(svc, old *corev1.Service) field.ErrorList {
	if old == nil {
		return nil
	}
	var errs field.ErrorList
	if !wantsDualStack(svc) {
		if len(svc.Spec.ClusterIPs) > 1 && slices.Equal(svc.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			svc.Spec.ClusterIPs = svc.Spec.ClusterIPs[:1]
		}
		if len(svc.Spec.IPFamilies) > 1 && slices.Equal(svc.Spec.IPFamilies, old.Spec.IPFamilies) {
			svc.Spec.IPFamilies = svc.Spec.IPFamilies[:1]
		}
		return nil
	}
	if reduced(svc.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		errs = append(errs, field.Invalid(policyPath, svc.Spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if reduced(svc.Spec.IPFamilies, old.Spec.IPFamilies) {
		errs = append(errs, field.Invalid(policyPath, svc.Spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// reduced says whether the second of two was taken away and the first kept. A
// list emptied altogether only means that the user doesn't care.
func reduced[T comparable](list, old []T) bool {
	return len(list) == 1 && len(old) == 2 && list[0] == old[0]
}

// inferFamilies adds the families of addresses given without one.
func inferFamilies(svc *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range svc.Spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			break
		}
		addr, err := netip.ParseAddr(ip)
		if err != nil || i < len(svc.Spec.IPFamilies) {
			continue
		}
		f := corev1.IPv6Protocol
		if addr.Is4() {
			f = corev1.IPv4Protocol
		}
		if !slices.Contains(cluster, f) {
			errs = append(errs, field.Invalid(ipsPath.Index(i), svc.Spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", f)))
			continue
		}
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, f)
	}
	return errs
}

func completeFamilies(svc *corev1.Service, first corev1.IPFamily, both bool) {
	if len(svc.Spec.IPFamilies) == 0 {
		svc.Spec.IPFamilies = []corev1.IPFamily{first}
	}
	if len(svc.Spec.IPFamilies) == 1 && both && wantsDualStack(svc) {
		other := corev1.IPv4Protocol
		if svc.Spec.IPFamilies[0] == corev1.IPv4Protocol {
			other = corev1.IPv6Protocol
		}
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, other)
	}
}
