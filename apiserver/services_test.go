package apiserver

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestServicesComeBack: the Services of the API and of DNS don't stay deleted, and
// nobody else gets their addresses, also while they aren't there.
func TestServicesComeBack(t *testing.T) {
	config := testConfig(t)
	config.ClusterDNS = netip.MustParseAddr("10.96.0.10")
	s := start(t, config)
	c, ctx := client(t, s), within(t)
	for namespace, name := range map[string]string{"default": "kubernetes", "kube-system": "kube-dns"} {
		if err := c.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]string{"default/kubernetes": "10.96.0.1", "kube-system/kube-dns": "10.96.0.10"} {
		ns, name, _ := strings.Cut(key, "/")
		eventually(t, "that "+key+" comes back", func() bool {
			service, err := c.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{})
			return err == nil && service.Spec.ClusterIP == want
		})
	}
}

// TestDNSMovesWithRanges: after a start with other ranges, the Service of DNS is where
// agents serve DNS. An address that somebody chose among today's stays.
func TestDNSMovesWithRanges(t *testing.T) {
	config := testConfig(t)
	for _, r := range []struct{ ranges, agents, want string }{
		{"10.96.0.0/16", "10.96.0.10", "10.96.0.10"},
		{"10.98.0.0/16", "10.98.0.10", "10.98.0.10"},
		{"10.98.0.0/16", "10.98.0.11", "10.98.0.10"},
	} {
		config.ServiceCIDRs, config.ClusterDNS = []netip.Prefix{netip.MustParsePrefix(r.ranges)}, netip.MustParseAddr(r.agents)
		s := start(t, config)
		got, err := client(t, s).CoreV1().Services("kube-system").Get(within(t), "kube-dns", metav1.GetOptions{})
		if err != nil || got.Spec.ClusterIP != r.want {
			t.Errorf("agents serve DNS at %s: the Service has %s (%v), want %s", r.agents, got.Spec.ClusterIP, err, r.want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoLongerLoadBalancer: a Service that isn't one any more has no address of
// one in its status.
func TestNoLongerLoadBalancer(t *testing.T) {
	s := sharedServer(t)
	services, ctx := client(t, s).CoreV1().Services("default"), within(t)
	service, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "lb"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if service, err = services.UpdateStatus(ctx, service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	service.Spec.Type = corev1.ServiceTypeClusterIP
	if service, err = services.Update(ctx, service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(service.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("status %v, want none", service.Status)
	}
	if _, err := services.UpdateStatus(ctx, service, metav1.UpdateOptions{}); err != nil {
		t.Errorf("writing its status: %v", err)
	}
}

// TestKeptAddresses: nobody else gets the address of a Service that every cluster
// has, also while it isn't there.
func TestKeptAddresses(t *testing.T) {
	config := testConfig(t)
	config.ClusterDNS = netip.MustParseAddr("10.96.0.10")
	s := start(t, config)
	c, ctx := client(t, s), within(t)
	steal := func(address string) error {
		thief := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "thief"}, Spec: corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}}}
		_, err := c.CoreV1().Services("default").Create(ctx, thief, metav1.CreateOptions{})
		return err
	}
	for address, key := range map[string]string{"10.96.0.1": "default/kubernetes", "10.96.0.10": "kube-system/kube-dns"} {
		if err := steal(address); err == nil || !strings.Contains(err.Error(), "spec.clusterIPs") || !strings.Contains(err.Error(), "already allocated") {
			t.Errorf("asking for %s: %v", address, err)
		}
		ns, name, _ := strings.Cut(key, "/")
		if err := c.CoreV1().Services(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := steal(address); err == nil || !strings.Contains(err.Error(), "spec.clusterIPs") {
			t.Errorf("asking for %s without %s: %v", address, key, err)
		}
	}
}
