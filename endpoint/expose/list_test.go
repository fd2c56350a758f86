package expose

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRows: what is exposed, by which hosts, and how its endpoints fare; an endpoint of
// two ports is one endpoint, and the cluster's own Services are left out.
func TestRows(t *testing.T) {
	r := request(func(r *Request) {
		r.Ports, r.To = []string{"80:8000", "443"}, []string{"10.77.0.12", "10.77.0.13"}
		r.Type, r.Web = "LoadBalancer", Web{Hosts: []string{"shop.example.com"}, Path: "/a"}
	})
	service, made, err := r.Objects()
	if err != nil {
		t.Fatal(err)
	}
	ingress, _, err := r.Ingress(service)
	if err != nil {
		t.Fatal(err)
	}
	bad := false
	made[0].Endpoints[1].Conditions.Ready = &bad
	services := []corev1.Service{*service,
		{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "alone"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"None"}, Ports: []corev1.ServicePort{{Port: 53, Protocol: "UDP"}}}},
	}
	var lines []string
	list := func() string {
		lines = nil
		for _, row := range Rows(services, []discoveryv1.EndpointSlice{*made[0]}, []networkingv1.Ingress{*ingress}) {
			lines = append(lines, strings.Join(row.Cells(), " | "))
		}
		return strings.Join(lines, "\n")
	}
	if got, want := list(), "default | alone | <headless> | 53/UDP | - | none\ndefault | shop | <none yet> | 80/TCP,443/TCP | shop.example.com/a | 1 of 2 ready"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	services[0].Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.77.0.100"}}
	if got := list(); !strings.Contains(got, "| 10.77.0.100 |") {
		t.Errorf("with an address: %s", got)
	}
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.77.0.101"}}
	services[0].Annotations = map[string]string{"fairway.dev/backup": "10.77.0.13"}
	if got := list(); !strings.Contains(got, "| shop.example.com/a at 10.77.0.101 | 1 of 2 ready, 1 of them for when no other is") {
		t.Errorf("with a gateway and a backup: %s", got)
	}
}
