package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/endpoint/check"
)

// checked is a Service that asks for checks, without a selector.
func checked(name string, more map[string]string) *corev1.Service {
	s := service(name, func(s *corev1.Service) { s.Spec.Selector = nil })
	s.Annotations = map[string]string{check.AnnotationCheck: "tcp"}
	for k, v := range more {
		s.Annotations[k] = v
	}
	return s
}

// createSlice makes a slice of one family with endpoints at port 8000; an address may be followed by @ and its node.
func (r *rig) createSlice(service string, addresses ...string) {
	r.Helper()
	family := discoveryv1.AddressTypeIPv4
	if strings.Contains(addresses[0], ":") {
		family = discoveryv1.AddressTypeIPv6
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](8000), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		address, node, ok := strings.Cut(a, "@")
		e := discoveryv1.Endpoint{Addresses: []string{address}}
		if ok {
			e.NodeName = &node
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	r.do(func() (metav1.Object, error) {
		return r.client.DiscoveryV1().EndpointSlices(r.ns).Create(context.Background(), s, metav1.CreateOptions{})
	})
}

func (r *rig) readyNode(name, address string, ready bool) {
	r.Helper()
	status := corev1.ConditionTrue
	if !ready {
		status = corev1.ConditionFalse
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
	}}
	r.do(func() (metav1.Object, error) {
		if n, err := r.client.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			return n, err
		}
		return r.client.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{})
	})
}

// vote has a node report: addresses with + (healthy) or - (unhealthy) in front.
func (r *rig) vote(node, service string, findings ...string) {
	r.Helper()
	var list []check.Finding
	for _, text := range findings {
		f := check.Finding{Addr: netip.AddrPortFrom(netip.MustParseAddr(text[1:]), 8000), Verdict: check.Verdict{Health: check.Healthy}}
		if text[0] == '-' {
			f.Verdict = check.Verdict{Health: check.Unhealthy, Reason: "connection refused"}
		}
		list = append(list, f)
	}
	for _, report := range check.Reports(node, types.NamespacedName{Namespace: r.ns, Name: service}, list) {
		r.do(func() (metav1.Object, error) {
			if s, err := r.client.DiscoveryV1().EndpointSlices(r.ns).Update(context.Background(), report, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
				return s, err
			}
			return r.client.DiscoveryV1().EndpointSlices(r.ns).Create(context.Background(), report, metav1.CreateOptions{})
		})
	}
}

// expectReady waits until the endpoints of a Service that are ready are these.
func (r *rig) expectReady(service string, want ...string) {
	r.Helper()
	r.eventually(fmt.Sprintf("ready endpoints of %s are %v", service, want), func(context.Context) error {
		slices, err := r.slicesOf(service)
		if err != nil {
			return err
		}
		got := map[string]bool{}
		for _, s := range slices {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					got[e.Addresses[0]] = true
				}
			}
		}
		for _, a := range want {
			if !got[a] {
				return fmt.Errorf("%s isn't ready", a)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("%d are ready: %v", len(got), got)
		}
		return nil
	})
}

func (r *rig) expectSaid(reason, text string) {
	r.Helper()
	r.eventually("Event "+reason, func(ctx context.Context) error {
		list, err := r.client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("none with %q among %d", text, len(list.Items))
	})
}

// TestHealthOfOwnMachine: the node beside an endpoint decides, in both families;
// other nodes aren't asked. Without the annotation all is as it was.
func TestHealthOfOwnMachine(t *testing.T) {
	r := newFakeRig(t, controller.Options{})
	r.readyNode("a", "10.77.0.1", true)
	r.readyNode("b", "fd00:77::2", true)
	r.createService(checked("web", nil))
	r.createSlice("web", "10.77.0.1@a")
	r.createSlice("web", "fd00:77::2@b")
	r.vote("a", "web", "-10.77.0.1", "-fd00:77::2")
	r.expectReady("web", "fd00:77::2")
	r.expectSaid("EndpointUnhealthy", "10.77.0.1:8000 gets no new connections: connection refused (seen from a)")
	r.vote("b", "web", "-fd00:77::2")
	r.expectReady("web", "10.77.0.1", "fd00:77::2") // all failed: keep
	r.expectSaid("AllEndpointsUnhealthy", "keep")
	r.vote("b", "web", "+fd00:77::2")
	r.expectReady("web", "fd00:77::2")
	r.expectSaid("EndpointHealthy", "answers again")
	r.updateService("web", func(s *corev1.Service) { s.Annotations = nil })
	r.expectReady("web", "10.77.0.1", "fd00:77::2")
}

// TestHealthByMajority: three nodes look at an endpoint without an agent, and two
// decide. What one that is gone said counts no more.
func TestHealthByMajority(t *testing.T) {
	r := newFakeRig(t, controller.Options{})
	for i, n := range []string{"a", "b", "c"} {
		r.readyNode(n, fmt.Sprintf("10.77.0.%d", i+1), true)
	}
	r.createService(checked("far", map[string]string{check.AnnotationAllFailed: "drop"}))
	r.createSlice("far", "192.0.2.7", "192.0.2.8")
	r.vote("a", "far", "-192.0.2.7", "-192.0.2.8")
	r.vote("b", "far", "+192.0.2.7", "-192.0.2.8")
	r.vote("c", "far", "+192.0.2.7", "-192.0.2.8")
	r.expectReady("far", "192.0.2.7")
	r.vote("c", "far", "-192.0.2.7", "-192.0.2.8")
	r.expectReady("far")
	r.expectSaid("AllEndpointsUnhealthy", "drop")
	r.vote("c", "far", "+192.0.2.7", "-192.0.2.8")
	r.expectReady("far", "192.0.2.7")
	r.readyNode("b", "10.77.0.2", false) // one against one: as it was
	r.vote("a", "far", "+192.0.2.7", "+192.0.2.8")
	r.expectReady("far", "192.0.2.7")
	r.vote("c", "far", "+192.0.2.7", "+192.0.2.8")
	r.expectReady("far", "192.0.2.7", "192.0.2.8")
}

// TestHealthOfMirroredEndpoints: the controller that mirrors Endpoints leaves
// `ready` to the checks.
func TestHealthOfMirroredEndpoints(t *testing.T) {
	r := newFakeRig(t, controller.Options{})
	r.readyNode("a", "10.77.0.1", true)
	r.createService(checked("old", nil))
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "10.77.0.1"}, {IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: 8000, Protocol: corev1.ProtocolTCP}},
	}}}
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().Endpoints(r.ns).Create(context.Background(), endpoints, metav1.CreateOptions{})
	})
	r.expectReady("old", "10.77.0.1", "192.0.2.1")
	r.vote("a", "old", "-10.77.0.1", "+192.0.2.1")
	r.expectReady("old", "192.0.2.1")
	endpoints.Subsets[0].Addresses = append(endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: "192.0.2.2"})
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().Endpoints(r.ns).Update(context.Background(), endpoints, metav1.UpdateOptions{})
	})
	r.expectReady("old", "192.0.2.1", "192.0.2.2")
}
