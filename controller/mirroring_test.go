package controller_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/controller"
)

// mirroringCases are what mirrored EndpointSlices must be like, on any API.
var mirroringCases = map[string]func(*rig){
	"follows endpoints":  testMirrorFollows,
	"endpoints first":    testMirrorEndpointsFirst,
	"skip label":         testMirrorSkip,
	"selector appears":   testMirrorSelectorAppears,
	"families and ports": testMirrorFamiliesAndPorts,
}

func TestMirroringOnFake(t *testing.T) {
	for name, test := range mirroringCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newFakeRig(t, controller.Options{}))
		})
	}
}

func testMirrorFollows(r *rig) {
	r.createService(manual("db"))
	r.createEndpoints(handmade("db", "192.0.2.1"))
	r.expectEndpoints("db", "192.0.2.1:5432 ready")
	slices, err := r.slicesOf("db")
	if err != nil {
		r.Fatal(err)
	}
	s := slices[0]
	if s.Labels[discoveryv1.LabelManagedBy] != "endpointslicemirroring-controller.k8s.io" || s.Labels["team"] != "blue" {
		r.Errorf("labels of mirrored slice are %v", s.Labels)
	}
	if owner := metav1.GetControllerOf(&s); owner == nil || owner.Kind != "Endpoints" || owner.Name != "db" {
		r.Errorf("owner of mirrored slice is %v", owner)
	}
	r.updateEndpoints("db", func(e *corev1.Endpoints) {
		e.Subsets[0].NotReadyAddresses = []corev1.EndpointAddress{{IP: "192.0.2.2", Hostname: "second"}}
	})
	r.expectEndpoints("db", "192.0.2.1:5432 ready", "192.0.2.2:5432 notready hostname=second")
	r.updateEndpoints("db", func(e *corev1.Endpoints) { e.Subsets[0].Ports[0].Port = 5433 })
	r.expectEndpoints("db", "192.0.2.1:5433 ready", "192.0.2.2:5433 notready hostname=second")
	r.do(func() (metav1.Object, error) {
		return nil, r.client.CoreV1().Endpoints(r.ns).Delete(context.Background(), "db", metav1.DeleteOptions{})
	})
	r.expectNoSlices("db")
}

func testMirrorEndpointsFirst(r *rig) {
	r.createEndpoints(handmade("db", "192.0.2.1"))
	r.createService(manual("db"))
	r.expectEndpoints("db", "192.0.2.1:5432 ready")
	r.deleteService("db")
	r.expectNoSlices("db")
}

func testMirrorSkip(r *rig) {
	r.createService(manual("db"))
	r.createEndpoints(handmade("db", "192.0.2.1"))
	r.expectEndpoints("db", "192.0.2.1:5432 ready")
	r.updateEndpoints("db", func(e *corev1.Endpoints) { e.Labels[discoveryv1.LabelSkipMirror] = "true" })
	r.expectNoSlices("db")
	r.updateEndpoints("db", func(e *corev1.Endpoints) { delete(e.Labels, discoveryv1.LabelSkipMirror) })
	r.expectEndpoints("db", "192.0.2.1:5432 ready")
	r.updateEndpoints("db", func(e *corev1.Endpoints) {
		e.Annotations = map[string]string{"control-plane.alpha.kubernetes.io/leader": "{}"}
	})
	r.expectNoSlices("db")
}

func testMirrorSelectorAppears(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(manual("db"))
	r.createEndpoints(handmade("db", "192.0.2.1"))
	r.expectEndpoints("db", "192.0.2.1:5432 ready")
	r.updateService("db", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web"} })
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectEndpoints("db", "10.0.0.1:5432 n1 z1 ready serving")
	r.expectSubsets("db", "[10.0.0.1] not [] on sql:5432")
}

func testMirrorFamiliesAndPorts(r *rig) {
	r.createService(manual("db"))
	e := handmade("db", "192.0.2.1", "2001:db8::1")
	e.Subsets = append(e.Subsets, corev1.EndpointSubset{
		Addresses: []corev1.EndpointAddress{{IP: "192.0.2.9"}},
		Ports:     []corev1.EndpointPort{{Name: "sql", Port: 6543, Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("example.com/sql")}},
	})
	r.createEndpoints(e)
	r.expectEndpoints("db", "192.0.2.1:5432 ready", "2001:db8::1:5432 ready", "192.0.2.9:6543 ready")
}

func manual(name string) *corev1.Service {
	return service(name, func(s *corev1.Service) {
		s.Spec.Selector = nil
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Spec.Ports = []corev1.ServicePort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(5432)}}
	})
}

func handmade(name string, ips ...string) *corev1.Endpoints {
	e := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "blue"}},
		Subsets:    []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}}}},
	}
	for _, ip := range ips {
		e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: ip})
	}
	return e
}

func (r *rig) createEndpoints(e *corev1.Endpoints) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().Endpoints(r.ns).Create(context.Background(), e.DeepCopy(), metav1.CreateOptions{})
	})
}

func (r *rig) updateEndpoints(name string, change func(*corev1.Endpoints)) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		e, err := r.client.CoreV1().Endpoints(r.ns).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		change(e)
		return r.client.CoreV1().Endpoints(r.ns).Update(context.Background(), e, metav1.UpdateOptions{})
	})
}

func (r *rig) expectNoSlices(service string) {
	r.Helper()
	r.eventually("no EndpointSlices of "+service, func(context.Context) error {
		found, err := r.slicesOf(service)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("there are %d", len(found))
		}
		return err
	})
}
