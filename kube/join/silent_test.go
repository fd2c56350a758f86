package join_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSilentMachine: a machine that stops renewing its Lease is not ready, nor
// are its endpoints; when it is heard of again, they are.
func TestSilentMachine(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	node, name := c.admin, "n1"
	if _, err := node.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := node.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	yes, no, other := true, false, "n2"
	slices := node.DiscoveryV1().EndpointSlices("default")
	if _, err := slices.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "mine"}},
		AddressType: discoveryv1.AddressTypeIPv6,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"2001:db8::1"}, NodeName: &name, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
			{Addresses: []string{"2001:db8::2"}, NodeName: &name, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
			{Addresses: []string{"2001:db8::3"}, NodeName: &other, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leases := node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state := func() (ready corev1.ConditionStatus, taints int, endpoints [3]bool) {
		n, err := node.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := slices.Get(ctx, "s", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range s.Endpoints {
			endpoints[i] = e.Conditions.Ready == nil || *e.Conditions.Ready
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				ready = condition.Status
			}
		}
		return ready, len(n.Spec.Taints), endpoints
	}
	c.eventually("that the silent machine is marked", func() bool {
		ready, taints, endpoints := state()
		return ready == corev1.ConditionUnknown && taints == 2 && endpoints == [3]bool{false, false, true}
	})
	now = metav1.NowMicro()
	lease.Spec.RenewTime = &now
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("that the machine is back", func() bool {
		ready, taints, endpoints := state()
		return ready == corev1.ConditionTrue && taints == 0 && endpoints == [3]bool{true, false, true}
	})
}

// TestAbandonedPods: a Pod on a machine without a kubelet, and one on none, can
// be deleted; so can their namespace.
func TestAbandonedPods(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	if _, err := c.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "temp"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"a": "n1", "b": "nowhere"} {
		if _, err := c.admin.CoreV1().Pods("temp").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("that the namespace has its ServiceAccount", func() bool {
		_, err := c.admin.CoreV1().ServiceAccounts("temp").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	c.leftToKubelet()
	if err := c.admin.CoreV1().Namespaces().Delete(ctx, "temp", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("that the namespace goes", func() bool {
		_, err := c.admin.CoreV1().Namespaces().Get(ctx, "temp", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// leftToKubelet deletes a Pod on a node that has a kubelet: it ends the Pod.
func (c *cluster) leftToKubelet() {
	c.Helper()
	ctx, core := c.Context(), c.admin.CoreV1()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "k1"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1"}}}
	if _, err := core.Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "k1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := core.Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if err := core.Pods("default").Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	for _, name := range []string{"a", "b"} { // which tells that the collector has looked
		if err := core.Pods("temp").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			c.Fatal(err)
		}
		c.eventually("that Pod "+name+" goes", func() bool {
			_, err := core.Pods("temp").Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	if _, err := core.Pods("default").Get(ctx, "p", metav1.GetOptions{}); err != nil {
		c.Errorf("a Pod that a kubelet runs: %v", err)
	}
}
