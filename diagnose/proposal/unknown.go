package proposal

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The first addresses that stand for those which the server or the network will choose: of
// networks that nobody routes (RFC 2544, RFC 3849). Node ports are above all ranges of those.
var standIns = [2]netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:fa18::1")}

const firstStandInPort = 60001

// standIn is an address that nothing has, with the name by which it is told.
func (j *joiner) standIn(ipv6 bool, name string) netip.Addr {
	a := standIns[0]
	if ipv6 {
		a = standIns[1]
	}
	for j.Addresses[a] != "" {
		a = a.Next()
	}
	j.Addresses[a] = name
	return a
}

// nameUnknown replaces the cluster IPs and node ports of new Services that nobody has asked for.
// The server chooses anew when it is in earnest, so those of a dry run mean nothing.
func (j *joiner) nameUnknown() {
	asked := map[string]*unstructured.Unstructured{}
	for _, u := range j.proposed {
		if kindOf(u) == "Service" {
			asked[u.GetNamespace()+"/"+u.GetName()] = u
		}
	}
	slices.SortFunc(j.changed, func(a, b pair) int { return compareNames(a.is.raw, b.is.raw) })
	for _, p := range j.changed {
		made, err := p.is.as()
		if s, is := made.(*corev1.Service); err == nil && is {
			j.nameOf(s, p.was, asked[s.Namespace+"/"+s.Name])
		}
	}
}

func compareNames(a, b *unstructured.Unstructured) int {
	return strings.Compare(a.GetKind()+a.GetNamespace()+"/"+a.GetName(), b.GetKind()+b.GetNamespace()+"/"+b.GetName())
}

// nameOf does that for one Service; live is what it is now, or nil.
func (j *joiner) nameOf(s *corev1.Service, live *object, asked *unstructured.Unstructured) {
	given, _, _ := unstructured.NestedString(asked.Object, "spec", "clusterIP")
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	var had, wanted corev1.Service
	if live != nil {
		if made, err := live.as(); err == nil {
			had = *made.(*corev1.Service)
		}
	}
	if made, err := (&object{raw: asked}).as(); err == nil {
		wanted = *made.(*corev1.Service)
	}
	if had.Spec.ClusterIP == "" && given == "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		families := s.Spec.IPFamilies
		if len(families) == 0 {
			families = []corev1.IPFamily{corev1.IPv4Protocol}
		}
		s.Spec.ClusterIPs = nil
		for _, f := range families {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, j.standIn(f == corev1.IPv6Protocol, "a new cluster IP").String())
		}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	known := map[int32]bool{}
	for _, p := range slices.Concat(had.Spec.Ports, wanted.Spec.Ports) {
		known[p.NodePort] = p.NodePort != 0
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.NodePort != 0 && !known[p.NodePort] {
			stand := uint16(firstStandInPort + len(j.Ports))
			j.Ports[stand], p.NodePort = fmt.Sprintf("(the server's choice, for %d)", p.Port), int32(stand)
		}
	}
}
