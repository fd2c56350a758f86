package registry

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// What a Service of each type has.

func needsClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func needsNodePort(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		allocate := s.Spec.AllocateLoadBalancerNodePorts
		return allocate == nil || *allocate
	default:
		return false
	}
}

func needsHealthCheckNodePort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// externallyAccessible says whether traffic from outside the cluster is meant
// to reach the Service, and so whether externalTrafficPolicy means something.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		(spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0)
}

// keepAllocated fills in what the server once chose and the client left out,
// so that applying the same manifest again changes nothing.
func keepAllocated(svc, old *corev1.Service) {
	if needsClusterIP(old) && needsClusterIP(svc) {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(svc.Spec.ClusterIPs) == 0 && svc.Spec.ClusterIP == old.Spec.ClusterIP {
			svc.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if needsNodePort(old) && needsNodePort(svc) {
		keepNodePorts(svc, old)
	}
	if needsHealthCheckNodePort(old) && needsHealthCheckNodePort(svc) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// keepNodePorts gives ports without a node port the one that the port of
// their name had, unless another port asks for it now.
func keepNodePorts(svc, old *corev1.Service) {
	used := map[int32]bool{}
	for _, p := range svc.Spec.Ports {
		used[p.NodePort] = true
	}
	former := map[string]int32{}
	for _, p := range old.Spec.Ports {
		former[p.Name] = p.NodePort
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		if n := former[p.Name]; !used[n] {
			p.NodePort = n
			used[n] = true
		}
	}
	shareNodePorts(svc, old)
}

// shareNodePorts lets a second protocol of a port keep sharing its node port.
func shareNodePorts(svc, old *corev1.Service) {
	former := map[string]int32{}
	for _, p := range old.Spec.Ports {
		former[p.Name] = p.NodePort
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		n := former[p.Name]
		if p.NodePort != 0 || n == 0 {
			continue
		}
		free := true
		for _, q := range svc.Spec.Ports {
			if q.NodePort == n && q.Protocol == p.Protocol {
				free = false
			}
		}
		if free {
			p.NodePort = n
		}
	}
}

// syncClusterIPs keeps clusterIP, the older field, and clusterIPs[0] the same
// when a client that knows only one of them writes.
func syncClusterIPs(svc, old *corev1.Service) {
	if old == nil {
		if svc.Spec.ClusterIP != "" && len(svc.Spec.ClusterIPs) == 0 {
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
		return
	}
	sameIP := svc.Spec.ClusterIP == old.Spec.ClusterIP
	sameIPs := slices.Equal(svc.Spec.ClusterIPs, old.Spec.ClusterIPs)
	switch {
	case !sameIP && sameIPs && svc.Spec.ClusterIP == "":
		svc.Spec.ClusterIPs = nil
	case !sameIP && svc.Spec.ClusterIP != "" && (sameIPs || len(svc.Spec.ClusterIPs) == 0):
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	case sameIP && !sameIPs && len(svc.Spec.ClusterIPs) == 0:
		svc.Spec.ClusterIP = ""
	}
}

// dropForType drops what the former type had and the new one can't have: only
// what the user left as it was; what was changed at the same time is for
// validation to refuse.
func dropForType(svc, old *corev1.Service) {
	spec, was := &svc.Spec, &old.Spec
	if needsClusterIP(old) && !needsClusterIP(svc) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		dropSame(&spec.IPFamilyPolicy, was.IPFamilyPolicy)
	}
	if needsNodePort(old) && !needsNodePort(svc) && slices.EqualFunc(spec.Ports, was.Ports, sameNodePort) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheckNodePort(old) && !needsHealthCheckNodePort(svc) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		dropSame(&spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts)
		dropSame(&spec.LoadBalancerClass, was.LoadBalancerClass)
	}
	if externallyAccessible(was) && !externallyAccessible(spec) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
}

func sameNodePort(a, b corev1.ServicePort) bool { return a.NodePort == b.NodePort }

func dropSame[T comparable](field **T, was *T) {
	if *field != nil && was != nil && **field == *was {
		*field = nil
	}
}
