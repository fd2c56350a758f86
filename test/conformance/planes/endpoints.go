package planes

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/model"
)

// parseEndpoints reads the step's "NAMESPACE/SERVICE PORTS [PARTY[=STATE]...]"
// and makes the EndpointSlice that it stands for. PORTS is a list such as
// "8080" or "http:8080,dns:9090/udp". PARTY is a host's name; a6 is the IPv6 address of host
// a and gives an IPv6 slice. So does the name SERVICE-6, where the slice has no endpoint.
func parseEndpoints(args []string) (*discoveryv1.EndpointSlice, error) {
	namespace, service, err := splitName(args[0])
	if err != nil {
		return nil, err
	}
	service, v6 := strings.CutSuffix(service, "-6")
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
	}
	if s.Ports, err = parseEndpointPorts(args[1]); err != nil {
		return nil, err
	}
	for i, word := range args[2:] {
		name, state, _ := strings.Cut(word, "=")
		endpoint, addr, err := parseEndpoint(name, state)
		if err != nil {
			return nil, err
		}
		if i == 0 && addr.Is6() {
			v6 = true
		}
		if addr.Is6() != v6 {
			return nil, fmt.Errorf("endpoint %q: a slice holds one family only", word)
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	s.AddressType, s.Name = discoveryv1.AddressTypeIPv4, service+"-4"
	if v6 {
		s.AddressType, s.Name = discoveryv1.AddressTypeIPv6, service+"-6"
	}
	return s, nil
}

// parseEndpoint reads an endpoint of a case: a host's name, such as "a", and its state,
// which is "" (ready), "unready", "serving" or "terminating".
func parseEndpoint(name, state string) (discoveryv1.Endpoint, netip.Addr, error) {
	addr, err := partyAddr(name)
	if err != nil {
		return discoveryv1.Endpoint{}, addr, err
	}
	host, ok := hostAt(addr)
	if !ok {
		return discoveryv1.Endpoint{}, addr, fmt.Errorf("endpoint %q: must be a host", name)
	}
	e := discoveryv1.Endpoint{Addresses: []string{addr.String()}}
	if host.Node != "" {
		e.NodeName, e.Zone = ptr.To(host.Node), ptr.To(zones[host.Node])
	}
	// Serving is readiness without regard to termination (KEP-1672).
	var ready, serving, terminating bool
	switch state {
	case "":
		ready, serving = true, true
	case "unready":
	case "serving":
		serving, terminating = true, true
	case "terminating":
		terminating = true
	default:
		return e, addr, fmt.Errorf("endpoint %s=%s: must be unready, serving (and terminating) or terminating", name, state)
	}
	e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(ready), Serving: ptr.To(serving), Terminating: ptr.To(terminating)}
	return e, addr, nil
}

// parseEndpointPorts reads "http:8080,dns:9090/udp".
func parseEndpointPorts(text string) ([]discoveryv1.EndpointPort, error) {
	var ports []discoveryv1.EndpointPort
	for _, word := range strings.Split(text, ",") {
		rest, protocol, hasProtocol := strings.Cut(word, "/")
		name, number, named := strings.Cut(rest, ":")
		if !named {
			name, number = "", rest
		}
		port, err := parsePort(number)
		if err != nil {
			return nil, err
		}
		proto := model.TCP
		if hasProtocol {
			if proto, err = parseProtocol(protocol); err != nil {
				return nil, err
			}
		}
		ports = append(ports, discoveryv1.EndpointPort{
			Name: &name, Port: ptr.To(int32(port)), Protocol: ptr.To(corev1.Protocol(strings.ToUpper(proto.String()))),
		})
	}
	return ports, nil
}
