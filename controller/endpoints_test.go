package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairway-net/fairway/controller"
)

// endpointsCases are what Endpoints must be like, on any API.
var endpointsCases = map[string]func(*rig){
	"subsets":         testSubsets,
	"service deleted": testEndpointsGoWithService,
	"headless":        testHeadlessEndpoints,
	"edited by hand":  testEndpointsRestored,
}

func TestEndpointsOnFake(t *testing.T) {
	for name, test := range endpointsCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newFakeRig(t, controller.Options{}))
		})
	}
}

func testSubsets(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", func(s *corev1.Service) {
		s.Labels = map[string]string{"team": "blue"}
		s.Spec.ClusterIP = "10.96.3.3"
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")},
			{Name: "admin", Port: 81, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8081)},
		}
	}))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.createPod(pod("b", "n1", "10.0.0.2", notReady))
	r.createPod(pod("c", "n1", "10.0.0.3", func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 }))
	r.expectSubsets("web",
		"[10.0.0.1] not [10.0.0.2] on admin:8081 http:8080",
		"[10.0.0.3] not [] on admin:8081 http:9090")
	got := r.endpoints("web")
	if got.Labels["team"] != "blue" || got.Labels["endpoints.kubernetes.io/managed-by"] != "endpoint-controller" {
		r.Errorf("labels of Endpoints are %v", got.Labels)
	}
	if _, headless := got.Labels[corev1.IsHeadlessService]; headless {
		r.Error("Endpoints of a Service with a cluster IP are labelled headless")
	}
	a := got.Subsets[0].Addresses[0]
	if a.TargetRef == nil || a.TargetRef.Name != "a" || a.NodeName == nil || *a.NodeName != "n1" {
		r.Errorf("address is %+v", a)
	}
	r.updatePodStatus("b", func(s *corev1.PodStatus) { s.Conditions = ready() })
	r.expectSubsets("web",
		"[10.0.0.1 10.0.0.2] not [] on admin:8081 http:8080",
		"[10.0.0.3] not [] on admin:8081 http:9090")
	r.terminatePod("a")
	r.expectSubsets("web",
		"[10.0.0.2] not [] on admin:8081 http:8080",
		"[10.0.0.3] not [] on admin:8081 http:9090")
}

func testEndpointsGoWithService(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectSubsets("web", "[10.0.0.1] not [] on http:8080")
	r.deleteService("web")
	r.eventually("Endpoints gone", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Endpoints(r.ns).Get(ctx, "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get Endpoints: %w", err)
	})
}

func testHeadlessEndpoints(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("db", func(s *corev1.Service) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Spec.Ports = nil
	}))
	r.createPod(pod("a", "n1", "10.0.0.1", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "db-0", "db" }))
	r.expectSubsets("db", "[10.0.0.1] not [] on ")
	got := r.endpoints("db")
	if _, headless := got.Labels[corev1.IsHeadlessService]; !headless {
		r.Errorf("labels of headless Endpoints are %v", got.Labels)
	}
	if name := got.Subsets[0].Addresses[0].Hostname; name != "db-0" {
		r.Errorf("hostname is %q", name)
	}
}

func testEndpointsRestored(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectSubsets("web", "[10.0.0.1] not [] on http:8080")
	r.do(func() (metav1.Object, error) {
		e, err := r.client.CoreV1().Endpoints(r.ns).Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		e.Subsets = nil
		return r.client.CoreV1().Endpoints(r.ns).Update(context.Background(), e, metav1.UpdateOptions{})
	})
	r.expectSubsets("web", "[10.0.0.1] not [] on http:8080")
}

func (r *rig) endpoints(name string) *corev1.Endpoints {
	r.Helper()
	e, err := r.client.CoreV1().Endpoints(r.ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// expectSubsets waits until the Endpoints have exactly the subsets described.
func (r *rig) expectSubsets(name string, want ...string) {
	r.Helper()
	r.eventually("Endpoints "+name, func(ctx context.Context) error {
		e, err := r.client.CoreV1().Endpoints(r.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, s := range e.Subsets {
			got = append(got, describeSubset(s))
		}
		if g, w := strings.Join(got, "; "), strings.Join(want, "; "); g != w {
			return fmt.Errorf("got %s; want %s", g, w)
		}
		return nil
	})
}

func describeSubset(s corev1.EndpointSubset) string {
	ips := func(addresses []corev1.EndpointAddress) (list []string) {
		for _, a := range addresses {
			list = append(list, a.IP)
		}
		return list
	}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%s:%d", p.Name, p.Port))
	}
	return fmt.Sprintf("%v not %v on %s", ips(s.Addresses), ips(s.NotReadyAddresses), strings.Join(ports, " "))
}
