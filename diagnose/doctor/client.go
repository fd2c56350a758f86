package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// clientPod is the pod that asks; nil if it isn't one.
func (e *Evidence) clientPod() *corev1.Pod {
	from := e.Question.From
	if from.Kind != "pod" || e.Objects == nil {
		return nil
	}
	return e.Objects.Pod(from.Namespace, from.Name)
}

func fromPod(e *Evidence) (bool, string) { return e.Service != nil && e.clientPod() != nil, "" }

// checkClient finds FW111: by the pod's resolv.conf where it could be read, else by
// what its spec says.
func checkClient(_ context.Context, e *Evidence) []Finding {
	dns := e.Objects.Service(dnsNamespace, dnsName)
	if dns == nil {
		return nil // FW110 says so
	}
	pod := e.clientPod()
	if e.Client == nil || len(e.Client.Resolvers) == 0 {
		return clientBySpec(pod, clusterIPs(dns))
	}
	if i := slices.IndexFunc(e.Client.Resolvers, func(r Resolver) bool { return r.asks(clusterIPs(dns)) }); i >= 0 {
		want := pod.Namespace + ".svc." + e.Domain
		if r := e.Client.Resolvers[i]; !slices.Contains(r.Search, want) {
			return []Finding{{Code: ClientAsksOtherDNS, Grade: Likely, What: fmt.Sprintf("the search list of pod %s lacks %s: short names of Services are not found", pod.Name, want)}}
		}
		return nil
	}
	return []Finding{{Code: ClientAsksOtherDNS, Grade: Proved, What: fmt.Sprintf("resolv.conf of pod %s names %s, not the cluster's DNS at %s",
		pod.Name, orElse(strings.Join(e.Client.Resolvers[0].Servers, " "), "no server"), joined(clusterIPs(dns)))}}
}

// asks reports whether one of the servers is the cluster's DNS, or one of this node
// alone, which asks for the pods.
func (r Resolver) asks(cluster []netip.Addr) bool {
	return slices.ContainsFunc(r.Servers, func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && (slices.Contains(cluster, a.Unmap()) || a.IsLoopback() || a.IsLinkLocalUnicast())
	})
}

// clientBySpec is what a pod's spec says of its names (core/v1 PodSpec.dnsPolicy).
func clientBySpec(pod *corev1.Pod, cluster []netip.Addr) []Finding {
	policy := pod.Spec.DNSPolicy
	why := ""
	switch {
	case policy == corev1.DNSDefault:
		why = "its dnsPolicy is Default: it asks the node's nameservers"
	case policy == corev1.DNSNone:
		r := Resolver{}
		if pod.Spec.DNSConfig != nil {
			r.Servers = pod.Spec.DNSConfig.Nameservers
		}
		if !r.asks(cluster) {
			why = "its dnsPolicy is None, and dnsConfig names other servers"
		}
	case pod.Spec.HostNetwork && policy != corev1.DNSClusterFirstWithHostNet:
		why = "it is on the host's network: dnsPolicy ClusterFirst means the node's nameservers there"
	}
	if why == "" {
		return nil
	}
	return []Finding{{Code: ClientAsksOtherDNS, Grade: Likely, What: fmt.Sprintf("pod %s doesn't ask the cluster's DNS at %s: %s", pod.Name, joined(cluster), why)}}
}

func joined(list []netip.Addr) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}
