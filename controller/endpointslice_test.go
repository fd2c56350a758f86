package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/controller"
)

// sliceCases are what EndpointSlices must be like, on any API.
var sliceCases = map[string]func(*rig){
	"readiness":            testReadiness,
	"named ports":          testNamedPorts,
	"terminating":          testTerminating,
	"relabelled pod":       testRelabelledPod,
	"selector changed":     testSelectorChanged,
	"publish not ready":    testPublishNotReady,
	"dual stack":           testDualStack,
	"traffic distribution": testTrafficDistribution,
	"topology mode":        testTopologyMode,
	"node appears":         testNodeAppears,
	"slice deleted":        testSliceDeleted,
	"many pods":            testManyPods,
	"selectorless":         testSelectorless,
}

func TestEndpointSlicesOnFake(t *testing.T) {
	for name, test := range sliceCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newFakeRig(t, controller.Options{}))
		})
	}
}

func testReadiness(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1", notReady))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 notready")
	r.updatePodStatus("a", func(s *corev1.PodStatus) { s.Conditions = ready() })
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
	r.updatePodStatus("a", func(s *corev1.PodStatus) { s.Conditions = nil })
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 notready")
	r.updatePodStatus("a", func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
	r.expectEndpoints("web")
}

func testNamedPorts(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") }))
	for i, port := range []int32{8080, 9090, 8080} {
		r.createPod(pod(fmt.Sprint("p", i), "n1", fmt.Sprint("10.0.0.", i), func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports[0].ContainerPort = port
		}))
	}
	r.createPod(pod("portless", "n1", "10.0.0.9", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }))
	r.expectEndpoints("web",
		"10.0.0.0:8080 n1 z1 ready serving",
		"10.0.0.1:9090 n1 z1 ready serving",
		"10.0.0.2:8080 n1 z1 ready serving",
		"10.0.0.9: n1 z1 ready serving")
}

func testTerminating(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
	r.terminatePod("a")
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 notready serving terminating")
	r.updatePodStatus("a", func(s *corev1.PodStatus) { s.Conditions = nil })
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 notready terminating")
	r.removePod("a")
	r.expectEndpoints("web")
}

func testRelabelledPod(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createService(service("other", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} }))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
	r.updatePod("a", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} })
	r.expectEndpoints("web")
	r.expectEndpoints("other", "10.0.0.1:8080 n1 z1 ready serving")
}

func testSelectorChanged(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.createPod(pod("b", "n1", "10.0.0.2", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web", "track": "canary"} }))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving", "10.0.0.2:8080 n1 z1 ready serving")
	r.updateService("web", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web", "track": "canary"} })
	r.expectEndpoints("web", "10.0.0.2:8080 n1 z1 ready serving")
}

func testPublishNotReady(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }))
	r.createPod(pod("a", "n1", "10.0.0.1", notReady, func(p *corev1.Pod) {
		p.Spec.Hostname, p.Spec.Subdomain = "first", "web"
	}))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready hostname=first")
}

func testDualStack(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", func(s *corev1.Service) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}))
	r.createPod(pod("a", "n1", "10.0.0.1", func(p *corev1.Pod) {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "fd00::1"})
	}))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving", "fd00::1:8080 n1 z1 ready serving")
}

func testTrafficDistribution(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createNode(node("n2", "z2"))
	r.createService(service("web", func(s *corev1.Service) {
		s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)
	}))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.createPod(pod("b", "n2", "10.0.0.2"))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving zones=z1", "10.0.0.2:8080 n2 z2 ready serving zones=z2")
	r.updateService("web", func(s *corev1.Service) {
		s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameNode)
	})
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving zones=z1 nodes=n1", "10.0.0.2:8080 n2 z2 ready serving zones=z2 nodes=n2")
	r.updateService("web", func(s *corev1.Service) { s.Spec.TrafficDistribution = nil })
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving", "10.0.0.2:8080 n2 z2 ready serving")
}

func testTopologyMode(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", func(s *corev1.Service) {
		s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	}))
	for i := range 6 {
		r.createPod(pod(fmt.Sprint("p", i), fmt.Sprint("n", 1+i%2), fmt.Sprint("10.0.0.", i)))
	}
	// One zone only: no hints, and nothing on the Node that does not exist.
	r.expectEndpoints("web", "10.0.0.0:8080 n1 z1 ready serving", "10.0.0.2:8080 n1 z1 ready serving", "10.0.0.4:8080 n1 z1 ready serving")
	r.createNode(node("n2", "z2"))
	var hinted []string
	for i := range 6 {
		hinted = append(hinted, fmt.Sprintf("10.0.0.%d:8080 n%d z%[2]d ready serving zones=z%[2]d", i, 1+i%2))
	}
	r.expectEndpoints("web", hinted...)
}

func testNodeAppears(r *rig) {
	r.createService(service("web", nil))
	r.createPod(pod("a", "late", "10.0.0.1"))
	r.expectEndpoints("web")
	r.createNode(node("late", "z1"))
	r.expectEndpoints("web", "10.0.0.1:8080 late z1 ready serving")
	r.do(func() (metav1.Object, error) {
		n, err := r.client.CoreV1().Nodes().Get(context.Background(), "late", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		n.Labels[corev1.LabelTopologyZone] = "z2"
		return r.client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{})
	})
	r.expectEndpoints("web", "10.0.0.1:8080 late z2 ready serving")
}

func testSliceDeleted(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
	found, err := r.slicesOf("web")
	if err != nil {
		r.Fatal(err)
	}
	r.do(func() (metav1.Object, error) {
		return nil, r.client.DiscoveryV1().EndpointSlices(r.ns).Delete(context.Background(), found[0].Name, metav1.DeleteOptions{})
	})
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
}

func testManyPods(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	var want []string
	var creating sync.WaitGroup
	for i := range 105 {
		ip := fmt.Sprintf("10.0.1.%d", i)
		want = append(want, ip+":8080 n1 z1 ready serving")
		creating.Go(func() { r.createPod(pod(fmt.Sprint("p", i), "n1", ip)) })
	}
	creating.Wait()
	r.expectEndpoints("web", want...)
	found, err := r.slicesOf("web")
	if err != nil {
		r.Fatal(err)
	}
	for _, slice := range found {
		if len(slice.Endpoints) > 100 {
			r.Errorf("a slice has %d endpoints", len(slice.Endpoints))
		}
	}
}

func testSelectorless(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("manual", func(s *corev1.Service) { s.Spec.Selector = nil }))
	handmade := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "handmade", Labels: map[string]string{discoveryv1.LabelServiceName: "manual"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	r.do(func() (metav1.Object, error) {
		return r.client.DiscoveryV1().EndpointSlices(r.ns).Create(context.Background(), handmade, metav1.CreateOptions{})
	})
	// A Service with a selector that comes after shows that time has passed.
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
	r.expectEndpoints("manual", "192.0.2.7:8080 ready")
}

// expectEndpoints waits until the EndpointSlices of the Service hold exactly
// the endpoints described.
func (r *rig) expectEndpoints(service string, want ...string) {
	r.Helper()
	slices.Sort(want)
	r.eventually("endpoints of "+service, func(context.Context) error {
		found, err := r.slicesOf(service)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return errors.New("there is no EndpointSlice yet")
		}
		var got []string
		for _, s := range found {
			for _, e := range s.Endpoints {
				for _, a := range e.Addresses {
					got = append(got, a+":"+describe(s.Ports, e))
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return errors.New("got " + strings.Join(got, "; ") + "; want " + strings.Join(want, "; "))
		}
		return nil
	})
}

func describe(ports []discoveryv1.EndpointPort, e discoveryv1.Endpoint) string {
	var words, numbers []string
	for _, p := range ports {
		numbers = append(numbers, fmt.Sprint(*p.Port))
	}
	words = append(words, strings.Join(numbers, ","))
	for _, s := range []*string{e.NodeName, e.Zone} {
		if s != nil {
			words = append(words, *s)
		}
	}
	if *e.Conditions.Ready {
		words = append(words, "ready")
	} else {
		words = append(words, "notready")
	}
	if ptr.Deref(e.Conditions.Serving, false) {
		words = append(words, "serving")
	}
	if ptr.Deref(e.Conditions.Terminating, false) {
		words = append(words, "terminating")
	}
	if e.Hostname != nil {
		words = append(words, "hostname="+*e.Hostname)
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			words = append(words, "zones="+z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			words = append(words, "nodes="+n.Name)
		}
	}
	return strings.Join(words, " ")
}

func service(name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector:   map[string]string{"app": "web"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func pod(name, node, ip string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "c", Image: "echo", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, Conditions: ready()},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func ready() []corev1.PodCondition {
	return []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func notReady(p *corev1.Pod) { p.Status.Conditions = nil }

func node(name, zone string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}
