// Package expose makes the Service and EndpointSlices that lead to addresses
// which somebody lists: what `fairway expose` writes. It is pure.
package expose

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairway-net/fairway/endpoint/check"
)

// Manager is what the label endpointslice.kubernetes.io/managed-by says of the
// slices made here.
const Manager = "expose.fairway.dev"

// Request is what is asked for, as typed.
type Request struct {
	Namespace, Name string
	Ports           []string // of the Service: PORT, or PORT:TARGET where the endpoints have another
	Protocol        string   // TCP, UDP or SCTP
	To              []string // ADDRESS:PORT or [ADDRESS]:PORT; ADDRESS where the ports are in Ports
	Check           string   // as in the annotation fairway.dev/health-check; "" is none
	Weights         []string // ADDRESS=WEIGHT, of endpoints
	Backups         []string // ADDRESS, of endpoints that are used only while no other one is healthy
	Type            string   // ClusterIP, NodePort or LoadBalancer
	// KeepClientAddress has endpoints see the client's address.
	KeepClientAddress bool
	Web               Web
}

// Objects returns the Service and a slice for each family and port of To. An
// error names the field.
func (r Request) Objects() (*corev1.Service, []*discoveryv1.EndpointSlice, error) {
	if problems := validation.IsDNS1035Label(r.Name); len(problems) > 0 {
		return nil, nil, fmt.Errorf("name %q: %s", r.Name, problems[0])
	}
	protocol := corev1.Protocol(strings.ToUpper(r.Protocol))
	if !slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, protocol) {
		return nil, nil, fmt.Errorf("--protocol %q: must be TCP, UDP or SCTP", r.Protocol)
	}
	kind := corev1.ServiceType(r.Type)
	if !slices.Contains([]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}, kind) {
		return nil, nil, fmt.Errorf("--type %q: must be ClusterIP, NodePort or LoadBalancer", r.Type)
	}
	ports, err := parsePorts(r.Ports)
	if err != nil {
		return nil, nil, err
	}
	endpoints, err := parseEndpoints(r.To, ports)
	if err != nil {
		return nil, nil, err
	}
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name},
		Spec: corev1.ServiceSpec{
			Type:           kind,
			IPFamilyPolicy: familyPolicy(endpoints), IPFamilies: families(endpoints),
		},
	}
	for _, p := range ports {
		target := p.target
		if target == 0 && len(endpoints) > 0 {
			target = int(endpoints[0].Port())
		}
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: p.name, Port: int32(p.port), Protocol: protocol, TargetPort: intstr.FromInt(cmp.Or(target, p.port)),
		})
	}
	if service.Annotations, err = r.annotations(endpoints); err != nil {
		return nil, nil, err
	}
	if len(endpoints) == 0 { // machines are to publish them
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, check.AnnotationPublishers, "*")
	}
	if r.KeepClientAddress {
		if kind == corev1.ServiceTypeClusterIP {
			return nil, nil, errors.New("--keep-client-address: is about clients outside, and --type ClusterIP has none; clients of names of --host are in X-Forwarded-For")
		}
		service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	return service, r.slices(protocol, ports, endpoints), nil
}

// Place says of each endpoint which machine has its address: where clients' addresses are kept,
// a machine leads them to its own endpoints alone, which are those that name it.
func Place(o Objects, nodes []corev1.Node) error {
	machines := map[string]string{}
	for i := range nodes {
		for _, a := range nodes[i].Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				machines[a.Address] = nodes[i].Name
			}
		}
	}
	for _, s := range o.Slices {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			machine := machines[e.Addresses[0]]
			if machine == "" {
				return fmt.Errorf("--keep-client-address: no machine that has joined has the address %s, so none would lead clients there; fairway status lists machines and addresses", e.Addresses[0])
			}
			e.NodeName = &machine
		}
	}
	return nil
}

// annotations are the check, the weights and the backups.
func (r Request) annotations(endpoints []netip.AddrPort) (map[string]string, error) {
	out := map[string]string{}
	if r.Check != "" {
		out[check.AnnotationCheck] = r.Check
		if _, problems := check.ReadWish(out); len(problems) > 0 {
			_, err := check.Parse(r.Check)
			if err == nil {
				err = problems[0]
			}
			return nil, fmt.Errorf("--check %w", err)
		}
	}
	for _, text := range r.Weights {
		at, weight, _ := strings.Cut(text, "=")
		a, err := netip.ParseAddr(at)
		n, wrong := strconv.Atoi(weight)
		if err != nil || wrong != nil || n < 0 || n > maxWeight {
			return nil, fmt.Errorf("--weight %q: must be ADDRESS=WEIGHT, such as 10.77.0.12=3, with a weight from 0 to %d", text, maxWeight)
		}
		if len(endpoints) > 0 && !slices.ContainsFunc(endpoints, func(e netip.AddrPort) bool { return e.Addr() == a.Unmap() }) {
			return nil, fmt.Errorf("--weight %q: no endpoint of --to has this address", text)
		}
	}
	if len(r.Weights) > 0 {
		out[annotationWeights] = strings.Join(r.Weights, ",")
	}
	if err := r.checkBackups(endpoints); err != nil {
		return nil, err
	}
	if len(r.Backups) > 0 {
		out[annotationBackup] = strings.Join(r.Backups, ",")
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// checkBackups refuses backups that are no endpoints, and endpoints that are all backups.
func (r Request) checkBackups(endpoints []netip.AddrPort) error {
	if len(r.Backups) > 0 && len(endpoints) > 0 && r.Check == "" {
		return errors.New("--backup: nobody would notice that the other endpoints are down; add --check, such as --check tcp")
	}
	backups := map[netip.Addr]bool{}
	for _, text := range r.Backups {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("--backup %q: must be the ADDRESS of an endpoint, such as 10.77.0.13", text)
		}
		if len(endpoints) > 0 && !slices.ContainsFunc(endpoints, func(e netip.AddrPort) bool { return e.Addr() == a.Unmap() }) {
			return fmt.Errorf("--backup %q: no endpoint of --to has this address", text)
		}
		backups[a.Unmap()] = true
	}
	if len(endpoints) > 0 && !slices.ContainsFunc(endpoints, func(e netip.AddrPort) bool { return !backups[e.Addr()] }) {
		return errors.New("--backup: all endpoints of --to are backups; leave out those that are to be used first")
	}
	return nil
}

// annotationWeights, annotationBackup and maxWeight are those of package compile.
const (
	annotationWeights = "fairway.dev/weights"
	annotationBackup  = "fairway.dev/backup"
	maxWeight         = 100
)

// port is one of a Service.
type port struct {
	name   string // "" of an only one
	port   int
	target int // of the endpoints; 0 if --to says
}

// parsePorts reads PORT and PORT:TARGET; each may be there once.
func parsePorts(list []string) ([]port, error) {
	if len(list) == 0 {
		return nil, errors.New("--port: not given")
	}
	var ports []port
	for _, text := range list {
		own, target, has := strings.Cut(text, ":")
		p := port{}
		var err, wrong error
		p.port, err = strconv.Atoi(own)
		if has {
			p.target, wrong = strconv.Atoi(target)
		}
		if err != nil || wrong != nil || p.port < 1 || p.port > 65535 || has && (p.target < 1 || p.target > 65535) {
			return nil, fmt.Errorf("--port %s: must be between 1 and 65535, or PORT:TARGET, such as 80:8000", text)
		}
		if slices.ContainsFunc(ports, func(o port) bool { return o.port == p.port }) {
			return nil, fmt.Errorf("--port %s: is there twice", text)
		}
		if len(list) > 1 {
			p.name = "port-" + own
			if !has {
				p.target = p.port
			}
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// parseEndpoints reads addresses with ports; each may be there once. Where Ports says
// the target, an address needs no port.
func parseEndpoints(list []string, ports []port) ([]netip.AddrPort, error) {
	var endpoints []netip.AddrPort
	for _, text := range list {
		e, err := parseEndpoint(strings.TrimSpace(text), ports)
		if err != nil {
			return nil, err
		}
		if err := check.Allowed(e.Addr()); err != nil {
			return nil, fmt.Errorf("--to %q: must be an address that means the same on every machine: no loopback, link-local or group address", text)
		}
		if slices.Contains(endpoints, e) {
			return nil, fmt.Errorf("--to %q: is there twice", text)
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

func parseEndpoint(text string, ports []port) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && ports[0].target != 0 {
		return netip.AddrPortFrom(a.Unmap(), uint16(ports[0].target)), nil
	}
	e, err := netip.ParseAddrPort(text)
	switch {
	case err != nil || e.Port() == 0:
		return e, fmt.Errorf("--to %q: must be ADDRESS:PORT, such as 10.77.0.12:8000 or [fd00::12]:8000; or ADDRESS with --port PORT:TARGET", text)
	case len(ports) > 1:
		return e, fmt.Errorf("--to %q: with several --port, give the address alone, and the endpoints' port as --port PORT:TARGET", text)
	case ports[0].target != 0 && ports[0].target != int(e.Port()):
		return e, fmt.Errorf("--to %q: --port says that endpoints have port %d", text, ports[0].target)
	}
	return netip.AddrPortFrom(e.Addr().Unmap(), e.Port()), nil
}

// families are those of the endpoints, in the order of their first appearance;
// nil leaves them to the server.
func families(endpoints []netip.AddrPort) []corev1.IPFamily {
	var list []corev1.IPFamily
	for _, e := range endpoints {
		family := corev1.IPv4Protocol
		if e.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		if !slices.Contains(list, family) {
			list = append(list, family)
		}
	}
	return list
}

// familyPolicy asks for both families only if there are endpoints of both.
func familyPolicy(endpoints []netip.AddrPort) *corev1.IPFamilyPolicy {
	if len(families(endpoints)) < 2 {
		return nil
	}
	policy := corev1.IPFamilyPolicyRequireDualStack
	return &policy
}

// slices are one for each family and port, or for each family where there are several ports.
func (r Request) slices(protocol corev1.Protocol, ports []port, endpoints []netip.AddrPort) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, e := range endpoints {
		family, suffix := discoveryv1.AddressTypeIPv4, "ipv4"
		if e.Addr().Is6() {
			family, suffix = discoveryv1.AddressTypeIPv6, "ipv6"
		}
		name := fmt.Sprintf("%s-%s-%d", r.Name, suffix, e.Port())
		s := byName[name]
		if s == nil {
			s = &discoveryv1.EndpointSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
				ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: map[string]string{
					discoveryv1.LabelServiceName: r.Name, discoveryv1.LabelManagedBy: Manager,
				}},
				AddressType: family,
			}
			for _, p := range ports {
				number := int32(cmp.Or(p.target, int(e.Port())))
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: nameOf(p), Port: &number, Protocol: &protocol})
			}
			byName[name] = s
			list = append(list, s)
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{e.Addr().String()}})
	}
	return list
}

// nameOf is a port's name; nil if it has none.
func nameOf(p port) *string {
	if p.name == "" {
		return nil
	}
	return &p.name
}
