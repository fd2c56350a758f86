package validation

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	clusterIPsPath = specPath.Child("clusterIPs")
	familiesPath   = specPath.Child("ipFamilies")
	policyPath     = specPath.Child("ipFamilyPolicy")
)

// ServiceClusterIPs validates addresses, families and family policy against
// each other (KEP-563).
func ServiceClusterIPs(spec *corev1.ServiceSpec) field.ErrorList {
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var errs field.ErrorList
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(clusterIPsPath, ""))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	for i, family := range spec.IPFamilies {
		errs = append(errs, oneOf(familiesPath.Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if slices.Contains(spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(familiesPath.Index(i), family))
		}
	}
	if p := spec.IPFamilyPolicy; p != nil {
		errs = append(errs, oneOf(policyPath, *p, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	}
	return append(errs, clusterIPs(spec)...)
}

func clusterIPs(spec *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	var addrs []netip.Addr
	for i, value := range spec.ClusterIPs {
		if i == 0 && value == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "'None' must be the first and only value"))
			}
			continue
		}
		addr, bad := ip(clusterIPsPath.Index(i), value)
		errs = append(errs, bad...)
		addrs = append(addrs, addr)
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if len(errs) > 0 || headless(spec) {
		return errs
	}
	if len(addrs) == 2 && addrs[0].Is4() == addrs[1].Is4() {
		errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	for i, addr := range addrs {
		if i >= len(spec.IPFamilies) {
			break
		}
		if f := spec.IPFamilies[i]; (f == corev1.IPv4Protocol) != addr.Is4() {
			errs = append(errs, field.Invalid(clusterIPsPath.Index(i), spec.ClusterIPs[i], fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", f, i)))
		}
	}
	return errs
}

// changeOfClusterIPs allows a second address to come and go, and nothing else.
func changeOfClusterIPs(spec, old *corev1.ServiceSpec) field.ErrorList {
	return changeOfList(clusterIPsPath, spec.ClusterIPs, old.ClusterIPs, spec.IPFamilyPolicy, "clusterIP")
}

// changeOfFamilies is the same for the families.
func changeOfFamilies(spec, old *corev1.ServiceSpec) field.ErrorList {
	return changeOfList(familiesPath, spec.IPFamilies, old.IPFamilies, spec.IPFamilyPolicy, "ipFamily")
}

func changeOfList[T comparable](path *field.Path, list, old []T, policy *corev1.IPFamilyPolicy, what string) field.ErrorList {
	const once = "may not change once set"
	var errs field.ErrorList
	for i := range min(len(list), len(old)) {
		if list[i] != old[i] {
			errs = append(errs, field.Invalid(path.Index(i), list, once))
		}
	}
	if len(list) < len(old) {
		if len(list) == 0 {
			errs = append(errs, field.Invalid(path.Index(0), list, fmt.Sprintf("primary %s can not be unset", what)))
		} else if policy == nil || *policy != corev1.IPFamilyPolicySingleStack {
			errs = append(errs, field.Invalid(policyPath, policy, fmt.Sprintf("must be set to 'SingleStack' when releasing the secondary %s", what)))
		}
	}
	return errs
}
