package validation

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// StatefulSet validates a StatefulSet.
func StatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	errs := metadata(s, true, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, notNegative(specPath.Child("replicas"), s.Spec.Replicas)...)
	errs = append(errs, selectorAndTemplate(s.Spec.Selector, &s.Spec.Template)...)
	errs = append(errs, oneOf(specPath.Child("podManagementPolicy"), s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
	return append(errs, oneOf(specPath.Child("updateStrategy", "type"), s.Spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)...)
}

// StatefulSetUpdate keeps what pods and volumes are named and found by.
func StatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	errs := immutable(specPath.Child("selector"), s.Spec.Selector, old.Spec.Selector)
	errs = append(errs, immutable(specPath.Child("serviceName"), s.Spec.ServiceName, old.Spec.ServiceName)...)
	return append(errs, immutable(specPath.Child("podManagementPolicy"), s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy)...)
}

// DaemonSet validates a DaemonSet.
func DaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	errs := metadata(d, true, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, selectorAndTemplate(d.Spec.Selector, &d.Spec.Template)...)
	if policy := d.Spec.Template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(specPath.Child("template", "spec", "restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	return append(errs, oneOf(specPath.Child("updateStrategy", "type"), d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)...)
}

// DaemonSetUpdate keeps the selector.
func DaemonSetUpdate(d, old *appsv1.DaemonSet) field.ErrorList {
	return immutable(specPath.Child("selector"), d.Spec.Selector, old.Spec.Selector)
}

// NetworkPolicy validates a NetworkPolicy.
func NetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	errs := metadata(p, true, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, metav1validation.ValidateLabelSelector(&p.Spec.PodSelector, metav1validation.LabelSelectorValidationOptions{}, specPath.Child("podSelector"))...)
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, oneOf(specPath.Child("policyTypes").Index(i), t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	for i, rule := range p.Spec.Ingress {
		errs = append(errs, policyRule(specPath.Child("ingress").Index(i), "from", rule.Ports, rule.From)...)
	}
	for i, rule := range p.Spec.Egress {
		errs = append(errs, policyRule(specPath.Child("egress").Index(i), "to", rule.Ports, rule.To)...)
	}
	return errs
}

func policyRule(path *field.Path, peersName string, ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer) field.ErrorList {
	var errs field.ErrorList
	for i, port := range ports {
		at := path.Child("ports").Index(i)
		if port.Protocol != nil {
			errs = append(errs, oneOf(at.Child("protocol"), *port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		}
		if port.Port != nil {
			errs = append(errs, portNumberOrName(at.Child("port"), *port.Port)...)
		}
		if port.EndPort != nil && port.Port == nil {
			errs = append(errs, field.Invalid(at.Child("endPort"), *port.EndPort, "may not be specified when `port` is not specified"))
		}
	}
	for i, peer := range peers {
		at := path.Child(peersName).Index(i)
		selects := peer.PodSelector != nil || peer.NamespaceSelector != nil
		switch {
		case peer.IPBlock == nil && !selects:
			errs = append(errs, field.Required(at, "must specify a peer"))
		case peer.IPBlock != nil && selects:
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		case peer.IPBlock != nil:
			errs = append(errs, cidr(at.Child("ipBlock", "cidr"), peer.IPBlock.CIDR)...)
		}
	}
	return errs
}

// LimitRange validates a LimitRange.
func LimitRange(l *corev1.LimitRange) field.ErrorList {
	errs := metadata(l, true, apivalidation.NameIsDNSSubdomain)
	seen := map[corev1.LimitType]bool{}
	for i, limit := range l.Spec.Limits {
		path := specPath.Child("limits").Index(i)
		if seen[limit.Type] {
			errs = append(errs, field.Duplicate(path.Child("type"), limit.Type))
		}
		seen[limit.Type] = true
		errs = append(errs, qualifiedName(path.Child("type"), string(limit.Type))...)
		for name, least := range limit.Min {
			if most, ok := limit.Max[name]; ok && least.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(path.Child("min").Key(string(name)), least.String(), "min value "+least.String()+" is greater than max value "+most.String()))
			}
		}
	}
	return errs
}

// ResourceQuota validates a ResourceQuota.
func ResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	errs := metadata(q, true, apivalidation.NameIsDNSSubdomain)
	for name, most := range q.Spec.Hard {
		path := specPath.Child("hard").Key(string(name))
		errs = append(errs, qualifiedName(path, strings.TrimPrefix(string(name), "requests."))...)
		if most.Cmp(resource.Quantity{}) < 0 {
			errs = append(errs, field.Invalid(path, most.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}

// highestPriority is the highest value of a class that isn't the system's own.
const highestPriority = 1000000000

// PriorityClass validates a PriorityClass.
func PriorityClass(p *schedulingv1.PriorityClass) field.ErrorList {
	errs := metadata(p, false, apivalidation.NameIsDNSSubdomain)
	if strings.HasPrefix(p.Name, "system-") {
		errs = append(errs, field.Forbidden(metadataPath.Child("name"), "priority class names with 'system-' prefix are reserved for system use only"))
	}
	if p.Value > highestPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "maximum allowed value of a user defined priority is 1000000000"))
	}
	if p.PreemptionPolicy != nil {
		errs = append(errs, oneOf(field.NewPath("preemptionPolicy"), *p.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

// PriorityClassUpdate keeps what pods have been given already.
func PriorityClassUpdate(p, old *schedulingv1.PriorityClass) field.ErrorList {
	errs := immutable(field.NewPath("value"), p.Value, old.Value)
	return append(errs, immutable(field.NewPath("preemptionPolicy"), p.PreemptionPolicy, old.PreemptionPolicy)...)
}
