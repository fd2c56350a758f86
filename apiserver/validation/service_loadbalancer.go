package validation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

// loadBalancer validates the fields that only load balancers have.
func loadBalancer(svc *corev1.Service) field.ErrorList {
	spec := &svc.Spec
	is := spec.Type == corev1.ServiceTypeLoadBalancer
	errs := sourceRanges(svc, is)
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

// sourceRanges validates the field, or the annotation that preceded it.
func sourceRanges(svc *corev1.Service, is bool) field.ErrorList {
	path := specPath.Child("loadBalancerSourceRanges")
	values := svc.Spec.LoadBalancerSourceRanges
	if len(values) == 0 {
		annotation, ok := svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
		if !ok {
			return nil
		}
		path = metadataPath.Child("annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
		if annotation = strings.TrimSpace(annotation); annotation != "" {
			values = strings.Split(annotation, ",")
		}
	}
	var errs field.ErrorList
	if !is {
		errs = append(errs, field.Forbidden(path, onlyLoadBalancer))
	}
	for i, v := range values {
		// Padding has always been tolerated here.
		errs = append(errs, cidr(path.Index(i), strings.TrimSpace(v))...)
	}
	return errs
}

// ServiceUpdate validates a changed Service.
func ServiceUpdate(svc, old *corev1.Service) field.ErrorList {
	errs := Service(svc)
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
