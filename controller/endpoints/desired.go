package endpoints

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	utilnet "k8s.io/utils/net"
)

const (
	// LabelManagedBy and Manager mark the Endpoints that this controller
	// writes, as Kubernetes does since 1.33 (KEP-4974).
	LabelManagedBy = "endpoints.kubernetes.io/managed-by"
	Manager        = "endpoint-controller"

	maxAddresses = 1000
	truncated    = "truncated"
)

// subsets returns the addresses of the Pods in canonical form.
func subsets(service *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	var all []corev1.EndpointSubset
	for _, pod := range pods {
		if !endpointsliceutil.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		ip, err := podIP(service, pod)
		if err != nil {
			// A Pod without an address of the Service's family is no error:
			// it will have one, or never.
			continue
		}
		ports, ok := podPorts(service, pod)
		if !ok {
			continue
		}
		subset := corev1.EndpointSubset{Ports: ports}
		a := podAddress(service, pod, ip)
		if service.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod) {
			subset.Addresses = []corev1.EndpointAddress{a}
		} else {
			subset.NotReadyAddresses = []corev1.EndpointAddress{a}
		}
		all = append(all, subset)
	}
	return Repack(all)
}

// podPorts looks up the Service's target ports in the Pod. A Pod that has none
// of them is no endpoint, unless the Service is headless and names no port.
func podPorts(service *corev1.Service, pod *corev1.Pod) ([]corev1.EndpointPort, bool) {
	if len(service.Spec.Ports) == 0 {
		return nil, service.Spec.ClusterIP == corev1.ClusterIPNone
	}
	var ports []corev1.EndpointPort
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number, err := endpointslice.FindPort(pod, port)
		if err != nil {
			continue
		}
		ports = append(ports, corev1.EndpointPort{
			Name: port.Name, Port: int32(number), Protocol: port.Protocol, AppProtocol: port.AppProtocol,
		})
	}
	return ports, len(ports) > 0
}

func podAddress(service *corev1.Service, pod *corev1.Pod, ip string) corev1.EndpointAddress {
	a := corev1.EndpointAddress{
		IP:        ip,
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.NodeName != "" {
		node := pod.Spec.NodeName
		a.NodeName = &node
	}
	if endpointsliceutil.ShouldSetHostname(pod, service) {
		a.Hostname = pod.Spec.Hostname
	}
	return a
}

// podIP returns the Pod's address of the Service's first family: Endpoints
// hold one family only.
func podIP(service *corev1.Service, pod *corev1.Pod) (string, error) {
	family := utilnet.IPFamilyOfString(pod.Status.PodIP)
	switch {
	case len(service.Spec.IPFamilies) > 0 && service.Spec.IPFamilies[0] == corev1.IPv6Protocol:
		family = utilnet.IPv6
	case len(service.Spec.IPFamilies) > 0:
		family = utilnet.IPv4
	case service.Spec.ClusterIP != "" && service.Spec.ClusterIP != corev1.ClusterIPNone:
		family = utilnet.IPFamilyOfString(service.Spec.ClusterIP)
	}
	for _, candidate := range pod.Status.PodIPs {
		if ip := utilnet.ParseIPSloppy(candidate.IP); ip != nil && utilnet.IPFamilyOf(ip) == family {
			return ip.String(), nil
		}
	}
	return "", fmt.Errorf("find address of Pod %s/%s: none is IPv%s", pod.Namespace, pod.Name, family)
}

// wanted returns what current, which may be empty, should be like.
func wanted(service *corev1.Service, current *corev1.Endpoints, pods []*corev1.Pod) *corev1.Endpoints {
	endpoints := current.DeepCopy()
	endpoints.Namespace, endpoints.Name = service.Namespace, service.Name
	endpoints.Subsets = subsets(service, pods)
	endpoints.Labels = maps.Clone(service.Labels)
	if endpoints.Labels == nil {
		endpoints.Labels = map[string]string{}
	}
	endpoints.Labels[LabelManagedBy] = Manager
	delete(endpoints.Labels, corev1.IsHeadlessService)
	if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone {
		endpoints.Labels[corev1.IsHeadlessService] = ""
	}
	if endpoints.Annotations == nil {
		endpoints.Annotations = map[string]string{}
	}
	delete(endpoints.Annotations, corev1.EndpointsOverCapacity)
	if truncate(endpoints.Subsets, maxAddresses) {
		endpoints.Annotations[corev1.EndpointsOverCapacity] = truncated
	}
	return endpoints
}

// setTrigger writes down since when the change had to be made; a zero time is
// not known.
func setTrigger(endpoints *corev1.Endpoints, trigger time.Time) {
	delete(endpoints.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if !trigger.IsZero() {
		endpoints.Annotations[corev1.EndpointsLastChangeTriggerTime] = trigger.UTC().Format(time.RFC3339Nano)
	}
}
