package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The DNS Service's name in every cluster.
const (
	dnsNamespace = "kube-system"
	dnsName      = "kube-dns"
)

// checkNames finds FW110: it asks the cluster's DNS, at the address of its
// Service, for the Service's name.
func checkNames(ctx context.Context, e *Evidence) []Finding {
	dns := e.Objects.Service(dnsNamespace, dnsName)
	if dns == nil {
		return []Finding{{Code: "FW110", Grade: Note, What: "there is no Service kube-system/kube-dns to ask"}}
	}
	want := clusterIPs(e.Service)
	server, err := netip.ParseAddr(dns.Spec.ClusterIP)
	if err != nil || len(want) == 0 {
		return nil
	}
	name := e.Service.Name + "." + e.Service.Namespace + ".svc." + e.Domain
	var list []Finding
	for _, network := range []string{"udp", "tcp"} {
		got, err := e.Probe.Lookup(ctx, netip.AddrPortFrom(server, 53), network, name)
		slices.SortFunc(got, netip.Addr.Compare)
		switch {
		case err != nil:
			list = append(list, Finding{Code: "FW110", Grade: Likely, What: fmt.Sprintf("%s over %s at %s: %v", name, network, server, err)})
		case !slices.Equal(got, want):
			list = append(list, Finding{Code: "FW110", Grade: Proved, What: fmt.Sprintf("%s over %s is %v, not %v", name, network, got, want)})
		}
	}
	return list
}

// clusterIPs are the Service's cluster IPs, sorted.
func clusterIPs(s *corev1.Service) []netip.Addr {
	var list []netip.Addr
	for _, text := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
