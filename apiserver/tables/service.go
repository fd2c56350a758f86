package tables

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/registry/rest"
)

const none, unset = "<none>", "<unset>"

// Services prints Services.
func Services() rest.TableConvertor {
	return of(func(s *corev1.Service) []any {
		clusterIP := none
		if len(s.Spec.ClusterIPs) > 0 {
			clusterIP = s.Spec.ClusterIPs[0]
		}
		return []any{
			s.Name, string(s.Spec.Type), clusterIP, externalIP(s), servicePorts(s.Spec.Ports), age(s.CreationTimestamp),
			formatLabels(s.Spec.Selector),
		}
	}, column("Name", "string"), column("Type", "string"), column("Cluster-IP", "string"), column("External-IP", "string"),
		column("Port(s)", "string"), column("Age", "string"), wide("Selector", "string"))
}

func externalIP(s *corev1.Service) string {
	var all []string
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			all = append(all, or(ingress.IP, ingress.Hostname))
		}
		if all = append(all, s.Spec.ExternalIPs...); len(all) == 0 {
			return "<pending>"
		}
	default:
		all = s.Spec.ExternalIPs
	}
	return or(strings.Join(all, ","), none)
}

func servicePorts(ports []corev1.ServicePort) string {
	pieces := make([]string, len(ports))
	for i, p := range ports {
		pieces[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			pieces[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
	}
	return or(strings.Join(pieces, ","), none)
}

func formatLabels(l map[string]string) string { return or(labels.Set(l).String(), none) }

// Endpoints prints Endpoints.
func Endpoints() rest.TableConvertor {
	return of(func(e *corev1.Endpoints) []any {
		return []any{e.Name, subsets(e.Subsets), age(e.CreationTimestamp)}
	}, column("Name", "string"), column("Endpoints", "string"), column("Age", "string"))
}

func subsets(all []corev1.EndpointSubset) string {
	var list []string
	for _, s := range all {
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				list = append(list, a.IP)
			}
			for _, p := range s.Ports {
				list = append(list, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return firstFew(list, none)
}

// EndpointSlices prints EndpointSlices.
func EndpointSlices() rest.TableConvertor {
	return of(func(e *discoveryv1.EndpointSlice) []any {
		var ports, addresses []string
		for _, p := range e.Ports {
			switch {
			case p.Port != nil:
				ports = append(ports, strconv.Itoa(int(*p.Port)))
			case p.Name != nil && *p.Name != "":
				ports = append(ports, *p.Name)
			default:
				ports = append(ports, "*")
			}
		}
		for _, ep := range e.Endpoints {
			addresses = append(addresses, ep.Addresses...)
		}
		return []any{e.Name, string(e.AddressType), firstFew(ports, unset), firstFew(addresses, unset), age(e.CreationTimestamp)}
	}, column("Name", "string"), column("AddressType", "string"), column("Ports", "string"), column("Endpoints", "string"), column("Age", "string"))
}

// firstFew joins at most three and says how many there are beyond.
func firstFew(list []string, nothing string) string {
	const most = 3
	if len(list) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:most], ","), len(list)-most)
	}
	return or(strings.Join(list, ","), nothing)
}
