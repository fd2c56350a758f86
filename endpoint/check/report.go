package check

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Reports are EndpointSlices with these labels and without the one that names a
// Service, so that no proxy takes them for endpoints. They say which node found
// what of a Service's endpoints.
const (
	// ReportOf names the Service, in the report's namespace.
	ReportOf = "fairway.dev/health-of"
	// ReportManager is what the label endpointslice.kubernetes.io/managed-by says.
	ReportManager = "health.fairway.dev"
)

// annotationReasons tells why endpoints are unhealthy: JSON, by address.
const annotationReasons = "fairway.dev/reasons"

// maxReported is how many endpoints one EndpointSlice may have (API validation).
const maxReported = 1000

// Finding is what a node found of one endpoint.
type Finding struct {
	Addr netip.AddrPort
	Verdict
}

// Reports returns a node's findings as EndpointSlices, at most a thousand in each
// and those of one family and port together. Endpoints of which nothing is known yet are left out.
func Reports(node string, service types.NamespacedName, findings []Finding) []*discoveryv1.EndpointSlice {
	findings = slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Health == Unknown })
	slices.SortFunc(findings, func(a, b Finding) int { return a.Addr.Compare(b.Addr) })
	parts := map[part][]Finding{}
	var order []part
	for _, f := range findings {
		p := part{f.Addr.Addr().Is6(), f.Addr.Port(), int(partOf(f.Addr.Addr()) % shares(len(findings)))}
		if parts[p] == nil {
			order = append(order, p)
		}
		parts[p] = append(parts[p], f)
	}
	var list []*discoveryv1.EndpointSlice
	for _, p := range order {
		list = append(list, report(node, service, p, parts[p]))
	}
	return list
}

// part is one report's share of a Service's endpoints.
type part struct {
	ipv6  bool
	port  uint16
	share int
}

// shares is among how many reports endpoints are divided: enough for each to
// stay well below what a slice holds, in steps that a few endpoints don't cross.
func shares(endpoints int) uint32 {
	n := uint32(1)
	for endpoints > maxReported/2*int(n) {
		n *= 2
	}
	return n
}

func partOf(a netip.Addr) uint32 {
	h := fnv.New32a()
	bytes := a.As16()
	_, _ = h.Write(bytes[:])
	return h.Sum32()
}

func report(node string, service types.NamespacedName, p part, findings []Finding) *discoveryv1.EndpointSlice {
	port, family, protocol := int32(p.port), discoveryv1.AddressTypeIPv4, corev1.ProtocolTCP
	if p.ipv6 {
		family = discoveryv1.AddressTypeIPv6
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: reportName(node, service.Name, p),
			Labels: map[string]string{
				ReportOf: service.Name, NodeLabel: node,
				discoveryv1.LabelManagedBy: ReportManager,
			},
		},
		AddressType: family,
	}
	if p.port != 0 {
		s.Ports = []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}}
	}
	reasons := map[string]string{}
	for _, f := range findings {
		healthy := f.Health == Healthy
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{f.Addr.Addr().String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &healthy},
		})
		if !healthy {
			reasons[f.Addr.Addr().String()] = f.Reason
		}
	}
	if len(reasons) > 0 {
		if text, err := json.Marshal(reasons); err == nil {
			s.Annotations = map[string]string{annotationReasons: string(text)}
		}
	}
	return s
}

// reportName is the same whenever the report is of the same. It has the
// Service's name in front for people, and a hash that tells it from others.
func reportName(node, service string, p part) string {
	h := fnv.New64a()
	fmt.Fprint(h, node, "/", service, "/", p.ipv6, p.port, p.share)
	suffix := "-health-" + strconv.FormatUint(h.Sum64(), 36)
	if most := validation.DNS1123SubdomainMaxLength - len(suffix); len(service) > most {
		service = service[:most]
	}
	return service + suffix
}

// IsReport tells a report, and which node has written it of which Service.
func IsReport(s *discoveryv1.EndpointSlice) (service types.NamespacedName, node string, is bool) {
	service = types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[ReportOf]}
	if len(s.Endpoints) > 0 && s.Endpoints[0].NodeName != nil {
		node = *s.Endpoints[0].NodeName
	}
	return service, node, service.Name != "" && s.Labels[discoveryv1.LabelManagedBy] == ReportManager
}

// Findings reads a report. What can't be read is left out.
func Findings(s *discoveryv1.EndpointSlice) []Finding {
	var port uint16
	if len(s.Ports) > 0 && s.Ports[0].Port != nil {
		port = uint16(*s.Ports[0].Port)
	}
	reasons := map[string]string{}
	if text := s.Annotations[annotationReasons]; text != "" {
		if err := json.Unmarshal([]byte(text), &reasons); err != nil {
			reasons = nil // they are for people; the findings stand without
		}
	}
	var list []Finding
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		a, err := netip.ParseAddr(e.Addresses[0])
		if err != nil {
			continue
		}
		f := Finding{Addr: netip.AddrPortFrom(a.Unmap(), port)}
		f.Health, f.Reason = Healthy, ""
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			f.Health, f.Reason = Unhealthy, reasons[e.Addresses[0]]
		}
		list = append(list, f)
	}
	return list
}
