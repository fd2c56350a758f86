package dns

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/dns/outside"
)

func balanced(namespace, name string, age int, annotations map[string]string, ingress ...string) *corev1.Service {
	s := clusterService(name, "10.96.7."+string(rune('1'+age)))
	s.Namespace, s.Annotations, s.Spec.Type = namespace, annotations, corev1.ServiceTypeLoadBalancer
	s.CreationTimestamp = metav1.NewTime(time.Unix(int64(age), 0))
	for _, text := range ingress {
		i := corev1.LoadBalancerIngress{Hostname: text}
		if _, err := netip.ParseAddr(text); err == nil {
			i = corev1.LoadBalancerIngress{IP: text}
		}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, i)
	}
	return s
}

// TestOutsideNames asks a server for the names of load balancer addresses.
func TestOutsideNames(t *testing.T) {
	index := NewIndex(IndexConfig{Zone: "cluster.local", Outside: "example.lan."})
	named := func(names string) map[string]string { return map[string]string{outside.AnnotationHostname: names} }
	index.SetService(balanced("default", "web", 2, nil, "10.77.0.100", "fd00::100"))
	index.SetService(balanced("shop", "web", 1, nil, "10.77.0.101"))
	index.SetService(balanced("shop", "late", 3, named("web.example.lan, *.apps.example.lan"), "10.77.0.102"))
	index.SetService(balanced("default", "far", 4, nil, "lb.example.org"))
	index.SetService(balanced("default", "pending", 5, nil))
	index.Synced()
	at := serve(t, index)
	check := func(qtype, name, status string, records ...string) {
		t.Helper()
		if got, list := dig(t, at, qtype, name); got != status || !slices.Equal(list, records) {
			t.Errorf("%s %s: %s %q; want %s %q", qtype, name, got, list, status, records)
		}
	}
	check("A", "web.example.lan.", "NOERROR", "30 A 10.77.0.100")
	check("AAAA", "WEB.example.lan.", "NOERROR", "30 AAAA fd00::100")
	check("A", "web.shop.example.lan.", "NOERROR", "30 A 10.77.0.101")
	check("A", "any.apps.example.lan.", "NOERROR", "30 A 10.77.0.102")
	check("A", "shop.example.lan.", "NOERROR")
	check("A", "none.example.lan.", "NXDOMAIN")
	check("A", "pending.example.lan.", "NXDOMAIN")
	check("A", "xexample.lan.", "REFUSED")
	check("CNAME", "far.example.lan.", "NOERROR", "30 CNAME lb.example.org.")
	index.DeleteService(typesName("default", "web")) // the other Service has the name now
	check("A", "web.example.lan.", "NOERROR", "30 A 10.77.0.102")
	index.SetService(balanced("shop", "web", 1, nil))
	check("A", "web.shop.example.lan.", "NXDOMAIN")
	check("A", "shop.example.lan.", "NXDOMAIN")
}
