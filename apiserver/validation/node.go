package validation

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Node validates a Node.
func Node(n *corev1.Node) field.ErrorList {
	errs := metadata(n, false, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, podCIDRs(n)...)
	for i, t := range n.Spec.Taints {
		path := specPath.Child("taints").Index(i)
		errs = append(errs, qualifiedName(path.Child("key"), t.Key)...)
		errs = append(errs, invalid(path.Child("value"), t.Value, isLabelValue(t.Value))...)
		errs = append(errs, oneOf(path.Child("effect"), t.Effect, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)...)
		for _, other := range n.Spec.Taints[:i] {
			if other.Key == t.Key && other.Effect == t.Effect {
				errs = append(errs, field.Duplicate(path, t))
			}
		}
	}
	return append(errs, nodeAddresses(n)...)
}

func podCIDRs(n *corev1.Node) field.ErrorList {
	path := specPath.Child("podCIDRs")
	var errs field.ErrorList
	families := map[bool]bool{}
	for i, value := range n.Spec.PodCIDRs {
		bad := cidr(path.Index(i), value)
		errs = append(errs, bad...)
		if p, err := netip.ParsePrefix(value); err == nil {
			if families[p.Addr().Is4()] {
				errs = append(errs, field.Invalid(path, n.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family"))
			}
			families[p.Addr().Is4()] = true
		}
	}
	switch {
	case n.Spec.PodCIDR == "":
	case len(n.Spec.PodCIDRs) == 0:
		errs = append(errs, cidr(specPath.Child("podCIDR"), n.Spec.PodCIDR)...)
	case n.Spec.PodCIDRs[0] != n.Spec.PodCIDR:
		errs = append(errs, field.Invalid(path.Index(0), n.Spec.PodCIDRs[0], "must match `podCIDR`"))
	}
	return errs
}

func nodeAddresses(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	for i, a := range n.Status.Addresses {
		path := statusPath.Child("addresses").Index(i)
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			_, bad := ip(path.Child("address"), a.Address)
			errs = append(errs, bad...)
		}
		for _, other := range n.Status.Addresses[:i] {
			if other == a {
				errs = append(errs, field.Duplicate(path, a))
			}
		}
	}
	return errs
}

// NodeUpdate validates a changed Node: its pod CIDRs stay, once it has some.
func NodeUpdate(n, old *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	if len(old.Spec.PodCIDRs) > 0 && !equality.Semantic.DeepEqual(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(specPath.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(specPath.Child("providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	return errs
}

// NodeStatus validates what a node reports of itself.
func NodeStatus(n, _ *corev1.Node) field.ErrorList { return nodeAddresses(n) }
