package validation

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairway-net/fairway/apiserver/defaults"
)

// kubeletPort must not be offered by a load balancer, which might open it to
// the world on the nodes.
const kubeletPort = 10250

// Service validates a Service before its addresses are allocated.
func Service(svc *corev1.Service) field.ErrorList { return checkService(svc, nil) }

// checkService validates a Service; old is what it was, nil if it is new.
func checkService(svc, old *corev1.Service) field.ErrorList {
	spec := &svc.Spec
	// The name becomes a DNS label (KEP-5311: also one that begins with a digit).
	errs := metadata(svc, true, apivalidation.NameIsDNSLabel)
	errs = append(errs, oneOf(specPath.Child("type"), spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	errs = append(errs, serviceType(spec)...)
	errs = append(errs, servicePorts(spec)...)
	errs = append(errs, metav1validation.ValidateLabels(spec.Selector, specPath.Child("selector"))...)
	errs = append(errs, sessionAffinity(spec)...)
	errs = append(errs, ServiceClusterIPs(spec)...)
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, ordinaryIP(specPath.Child("externalIPs").Index(i), ip)...)
	}
	errs = append(errs, sourceRanges(svc, old)...)
	errs = append(errs, loadBalancer(svc)...)
	return append(errs, trafficPolicies(spec)...)
}

func headless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// serviceType validates what depends on the type alone.
func serviceType(spec *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Ports) == 0 && !headless(spec) && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(specPath.Child("ports"), ""))
	}
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if headless(spec) {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), spec.ClusterIPs[0],
				fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
		}
	case corev1.ServiceTypeExternalName:
		errs = append(errs, externalName(spec)...)
	}
	return errs
}

func externalName(spec *corev1.ServiceSpec) field.ErrorList {
	const forbidden = "may not be set for ExternalName services"
	var errs field.ErrorList
	if spec.ClusterIP != "" || len(spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(specPath.Child("clusterIPs"), forbidden))
	}
	if len(spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(specPath.Child("ipFamilies"), forbidden))
	}
	if spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(specPath.Child("ipFamilyPolicy"), forbidden))
	}
	// A trailing dot says that the name is fully qualified.
	name := strings.TrimSuffix(spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(specPath.Child("externalName"), ""))
	}
	return append(errs, dnsSubdomain(specPath.Child("externalName"), name)...)
}

func servicePorts(spec *corev1.ServiceSpec) field.ErrorList {
	type key struct {
		corev1.Protocol
		number int32
	}
	var errs field.ErrorList
	names, ports, nodePorts := map[string]bool{}, map[key]bool{}, map[key]bool{}
	for i := range spec.Ports {
		p, path := &spec.Ports[i], specPath.Child("ports").Index(i)
		errs = append(errs, servicePort(path, p, len(spec.Ports) > 1)...)
		if p.Name != "" && names[p.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		names[p.Name] = true
		number, nodePort := key{p.Protocol, p.Port}, key{p.Protocol, p.NodePort}
		if ports[number] {
			errs = append(errs, field.Duplicate(path, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		ports[number] = true
		if p.NodePort != 0 && nodePorts[nodePort] {
			errs = append(errs, field.Duplicate(path.Child("nodePort"), p.NodePort))
		}
		nodePorts[nodePort] = true
		switch {
		case p.NodePort != 0 && (spec.Type == corev1.ServiceTypeClusterIP || spec.Type == corev1.ServiceTypeExternalName):
			errs = append(errs, field.Forbidden(path.Child("nodePort"), fmt.Sprintf("may not be used when `type` is '%s'", spec.Type)))
		case p.Port == kubeletPort && spec.Type == corev1.ServiceTypeLoadBalancer:
			errs = append(errs, field.Invalid(path, p.Port, fmt.Sprintf("may not expose port %d externally since it is used by kubelet", kubeletPort)))
		}
	}
	return errs
}

func servicePort(path *field.Path, p *corev1.ServicePort, needsName bool) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, dnsLabel(path.Child("name"), p.Name)...)
	} else if needsName {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, portNumber(path.Child("port"), p.Port)...)
	errs = append(errs, oneOf(path.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	errs = append(errs, portNumberOrName(path.Child("targetPort"), p.TargetPort)...)
	if p.AppProtocol != nil {
		errs = append(errs, qualifiedName(path.Child("appProtocol"), *p.AppProtocol)...)
	}
	return errs
}

func sessionAffinity(spec *corev1.ServiceSpec) field.ErrorList {
	errs := oneOf(specPath.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	path := specPath.Child("sessionAffinityConfig")
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		if spec.SessionAffinityConfig != nil {
			errs = append(errs, field.Forbidden(path, "must not be set when session affinity is None"))
		}
		return errs
	}
	const required = "when session affinity type is ClientIP"
	config := spec.SessionAffinityConfig
	switch timeout := path.Child("clientIP", "timeoutSeconds"); {
	case config == nil:
		errs = append(errs, field.Required(path, required))
	case config.ClientIP == nil:
		errs = append(errs, field.Required(path.Child("clientIP"), required))
	case config.ClientIP.TimeoutSeconds == nil:
		errs = append(errs, field.Required(timeout, required))
	case *config.ClientIP.TimeoutSeconds <= 0 || *config.ClientIP.TimeoutSeconds > maxAffinitySeconds:
		errs = append(errs, field.Invalid(timeout, *config.ClientIP.TimeoutSeconds,
			fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
	}
	return errs
}

// maxAffinitySeconds is one day.
const maxAffinitySeconds = 86400

func trafficPolicies(spec *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	external := specPath.Child("externalTrafficPolicy")
	switch {
	case defaults.ExternallyAccessible(spec):
		errs = append(errs, oneOf(external, spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	case spec.ExternalTrafficPolicy != "":
		errs = append(errs, field.Invalid(external, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	health := specPath.Child("healthCheckNodePort")
	switch {
	case spec.HealthCheckNodePort == 0:
	case spec.Type != corev1.ServiceTypeLoadBalancer || spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal:
		errs = append(errs, field.Invalid(health, spec.HealthCheckNodePort, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	default:
		errs = append(errs, portNumber(health, spec.HealthCheckNodePort)...)
		for _, p := range spec.Ports {
			if p.NodePort == spec.HealthCheckNodePort {
				errs = append(errs, field.Duplicate(health, spec.HealthCheckNodePort))
			}
		}
	}
	internal := specPath.Child("internalTrafficPolicy")
	if p := spec.InternalTrafficPolicy; p != nil {
		errs = append(errs, oneOf(internal, *p, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	} else if spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(internal, ""))
	}
	if d := spec.TrafficDistribution; d != nil {
		errs = append(errs, oneOf(specPath.Child("trafficDistribution"), *d,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferSameZone)...)
	}
	return errs
}
