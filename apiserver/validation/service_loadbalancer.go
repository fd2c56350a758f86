package validation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

// loadBalancer validates the fields that only load balancers have.
func loadBalancer(svc *corev1.Service) field.ErrorList {
	spec := &svc.Spec
	is := spec.Type == corev1.ServiceTypeLoadBalancer
	var errs field.ErrorList
	allocate := specPath.Child("allocateLoadBalancerNodePorts")
	switch {
	case is && spec.AllocateLoadBalancerNodePorts == nil:
		errs = append(errs, field.Required(allocate, ""))
	case !is && spec.AllocateLoadBalancerNodePorts != nil:
		errs = append(errs, field.Forbidden(allocate, onlyLoadBalancer))
	}
	if class := spec.LoadBalancerClass; class != nil {
		path := specPath.Child("loadBalancerClass")
		if is {
			errs = append(errs, qualifiedName(path, *class)...)
		} else {
			errs = append(errs, field.Forbidden(path, onlyLoadBalancer))
		}
	}
	return errs
}

// sourceRanges validates the field, or the annotation that preceded it. New values must
// be ranges, not addresses with a length (KEP-4858); those that old has may stay.
func sourceRanges(svc, old *corev1.Service) field.ErrorList {
	path := specPath.Child("loadBalancerSourceRanges")
	values, fromAnnotation, given := sourceRangesOf(svc)
	if !given {
		return nil
	}
	if fromAnnotation {
		path = metadataPath.Child("annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	}
	var errs field.ErrorList
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path, onlyLoadBalancer))
	}
	var former []string
	if old != nil {
		former, _, _ = sourceRangesOf(old)
	}
	for i, v := range values {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Index(i), v, true, former)...)
	}
	return errs
}

// sourceRangesOf reads the field, or the annotation. Padding has always been tolerated.
func sourceRangesOf(svc *corev1.Service) (values []string, fromAnnotation, given bool) {
	for _, v := range svc.Spec.LoadBalancerSourceRanges {
		values = append(values, strings.TrimSpace(v))
	}
	if len(values) > 0 {
		return values, false, true
	}
	annotation, given := svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if annotation = strings.TrimSpace(annotation); annotation != "" {
		for v := range strings.SplitSeq(annotation, ",") {
			values = append(values, strings.TrimSpace(v))
		}
	}
	return values, true, given
}

// ServiceUpdate validates a changed Service.
func ServiceUpdate(svc, old *corev1.Service) field.ErrorList {
	errs := checkService(svc, old)
	spec, was := &svc.Spec, &old.Spec
	external := spec.Type == corev1.ServiceTypeExternalName || was.Type == corev1.ServiceTypeExternalName
	if !external && (!headless(spec) || !headless(was)) {
		errs = append(errs, changeOfClusterIPs(spec, was)...)
		errs = append(errs, changeOfFamilies(spec, was)...)
	}
	balances := func(s *corev1.ServiceSpec) bool { return s.Type == corev1.ServiceTypeLoadBalancer }
	if balances(spec) && balances(was) {
		class, former := spec.LoadBalancerClass, was.LoadBalancerClass
		if (class == nil) != (former == nil) || class != nil && *class != *former {
			errs = append(errs, field.Invalid(specPath.Child("loadBalancerClass"), class, "may not change once set"))
		}
		local := corev1.ServiceExternalTrafficPolicyLocal
		if spec.ExternalTrafficPolicy == local && was.ExternalTrafficPolicy == local && spec.HealthCheckNodePort != was.HealthCheckNodePort {
			errs = append(errs, field.Forbidden(specPath.Child("healthCheckNodePort"), "field is immutable"))
		}
	}
	return errs
}

// ServiceStatus validates what a load-balancer implementation reports.
func ServiceStatus(svc, _ *corev1.Service) field.ErrorList {
	path := statusPath.Child("loadBalancer", "ingress")
	ingress := svc.Status.LoadBalancer.Ingress
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer && len(ingress) > 0 {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var errs field.ErrorList
	for i := range ingress {
		errs = append(errs, loadBalancerIngress(path.Index(i), &ingress[i])...)
	}
	return errs
}

func loadBalancerIngress(path *field.Path, in *corev1.LoadBalancerIngress) field.ErrorList {
	var errs field.ErrorList
	mode := path.Child("ipMode")
	if in.IP != "" {
		_, bad := ip(path.Child("ip"), in.IP)
		errs = append(errs, bad...)
	}
	switch {
	case in.IP != "" && in.IPMode == nil:
		errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
	case in.IP == "" && in.IPMode != nil:
		errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
	case in.IPMode != nil:
		errs = append(errs, oneOf(mode, *in.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
	}
	if in.Hostname != "" {
		name := path.Child("hostname")
		errs = append(errs, dnsSubdomain(name, in.Hostname)...)
		if _, bad := ip(name, in.Hostname); len(bad) == 0 {
			errs = append(errs, field.Invalid(name, in.Hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}
