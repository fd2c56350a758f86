package validation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Pod validates a Pod.
func Pod(p *corev1.Pod) field.ErrorList {
	errs := metadata(p, true, apivalidation.NameIsDNSSubdomain)
	return append(errs, PodSpec(specPath, &p.Spec)...)
}

// PodSpec validates what this project's nodes and controllers rely on.
func PodSpec(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	names := map[string]bool{}
	for i := range spec.InitContainers {
		errs = append(errs, container(path.Child("initContainers").Index(i), &spec.InitContainers[i], spec.HostNetwork, names)...)
	}
	for i := range spec.Containers {
		errs = append(errs, container(path.Child("containers").Index(i), &spec.Containers[i], spec.HostNetwork, names)...)
	}
	errs = append(errs, hostPorts(path.Child("containers"), spec.Containers)...)
	errs = append(errs, oneOf(path.Child("restartPolicy"), spec.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)...)
	errs = append(errs, oneOf(path.Child("dnsPolicy"), spec.DNSPolicy, corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metav1validation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	for _, f := range []struct {
		name, value string
		check       func(*field.Path, string) field.ErrorList
	}{
		{"nodeName", spec.NodeName, dnsSubdomain},
		{"serviceAccountName", spec.ServiceAccountName, dnsSubdomain},
		{"hostname", spec.Hostname, dnsLabel},
		{"subdomain", spec.Subdomain, dnsLabel},
	} {
		if f.value != "" {
			errs = append(errs, f.check(path.Child(f.name), f.value)...)
		}
	}
	if s := spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *s, "must be greater than or equal to 0"))
	}
	if s := spec.ActiveDeadlineSeconds; s != nil && *s < 1 {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *s, "must be between 1 and 2147483647, inclusive"))
	}
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, qualifiedName(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType))...)
	}
	return append(errs, volumes(path.Child("volumes"), spec.Volumes)...)
}

func container(path *field.Path, c *corev1.Container, hostNetwork bool, names map[string]bool) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, dnsLabel(path.Child("name"), c.Name)...)
	}
	if names[c.Name] {
		errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
	}
	names[c.Name] = true
	if c.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	}
	errs = append(errs, oneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, containerPorts(path.Child("ports"), c.Ports, hostNetwork)...)
	for i, e := range c.Env {
		at := path.Child("env").Index(i).Child("name")
		if e.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		errs = append(errs, invalid(at, e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
	}
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if p.probe != nil {
			errs = append(errs, probe(path.Child(p.name), p.probe)...)
		}
	}
	return errs
}

func containerPorts(path *field.Path, ports []corev1.ContainerPort, hostNetwork bool) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			errs = append(errs, invalid(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, portNumber(at.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, portNumber(at.Child("hostPort"), p.HostPort)...)
			if hostNetwork && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(at.Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
		errs = append(errs, oneOf(at.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	}
	return errs
}

// hostPorts refuses the same port of the node twice.
func hostPorts(path *field.Path, containers []corev1.Container) field.ErrorList {
	type key struct {
		protocol corev1.Protocol
		ip       string
		port     int32
	}
	var errs field.ErrorList
	seen := map[key]bool{}
	for i := range containers {
		for j, p := range containers[i].Ports {
			k := key{p.Protocol, p.HostIP, p.HostPort}
			if p.HostPort != 0 && seen[k] {
				errs = append(errs, field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), p.HostPort))
			}
			seen[k] = true
		}
	}
	return errs
}

func probe(path *field.Path, p *corev1.Probe) field.ErrorList {
	var errs field.ErrorList
	handlers := 0
	if h := p.HTTPGet; h != nil {
		handlers++
		errs = append(errs, portNumberOrName(path.Child("httpGet", "port"), h.Port)...)
		errs = append(errs, oneOf(path.Child("httpGet", "scheme"), h.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	}
	if h := p.TCPSocket; h != nil {
		handlers++
		errs = append(errs, portNumberOrName(path.Child("tcpSocket", "port"), h.Port)...)
	}
	if h := p.GRPC; h != nil {
		handlers++
		errs = append(errs, portNumber(path.Child("grpc", "port"), h.Port)...)
	}
	if h := p.Exec; h != nil {
		handlers++
		if len(h.Command) == 0 {
			errs = append(errs, field.Required(path.Child("exec", "command"), ""))
		}
	}
	switch {
	case handlers == 0:
		errs = append(errs, field.Required(path, "must specify a handler type"))
	case handlers > 1:
		errs = append(errs, field.Forbidden(path, "may not specify more than 1 handler type"))
	}
	for name, n := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		if n < 0 {
			errs = append(errs, field.Invalid(path.Child(name), n, "must be greater than or equal to 0"))
		}
	}
	return errs
}

func volumes(path *field.Path, list []corev1.Volume) field.ErrorList {
	var errs field.ErrorList
	var seen []string
	for i, v := range list {
		at := path.Index(i).Child("name")
		if v.Name == "" {
			errs = append(errs, field.Required(at, ""))
		} else {
			errs = append(errs, dnsLabel(at, v.Name)...)
		}
		if slices.Contains(seen, v.Name) {
			errs = append(errs, field.Duplicate(at, v.Name))
		}
		seen = append(seen, v.Name)
	}
	return errs
}
