package lab_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// apply makes a Deployment of four pods, Services of each sort for them, and a
// pod on node1 to ask from.
func (c *cluster) apply(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	d := hello(4)
	d.Spec.Template.Spec.Containers[0].Ports = append(d.Spec.Template.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 80, Protocol: corev1.ProtocolUDP, Name: "udp"})
	// As those who want no request lost do: the news of a pod's end must have
	// reached the proxies before it ends. The lab's echo waits by itself.
	d.Spec.Strategy = appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(2))}}
	if _, err := c.client.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	asks := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asks"}, Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "asks", Image: "asks"}}}}
	if _, err := c.client.CoreV1().Pods("default").Create(ctx, asks, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range services() {
		made, err := c.client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.services[s.Name] = made
	}
	eventually(t, "all pods run", func() bool {
		pod, err := c.client.CoreV1().Pods("default").Get(ctx, "asks", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning && c.available(t)
	})
	for !c.spread(t) { // those that were scheduled when one node was known are all there
		c.replacePods(t)
	}
}

// spread reports whether each node has pods of the Deployment's.
func (c *cluster) spread(t *testing.T) bool {
	t.Helper()
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=hello"})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range pods.Items {
		used[p.Spec.NodeName] = true
	}
	return len(used) == len(c.nodes)
}

func (c *cluster) available(t *testing.T) bool {
	d, err := c.client.AppsV1().Deployments("default").Get(t.Context(), "hello", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 4 && s.AvailableReplicas == 4 && s.Replicas == 4
}

// services are one of each sort.
func services() []*corev1.Service {
	make := func(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "hello"}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Port: 80, TargetPort: intstr.FromInt32(80)},
				{Name: "udp", Port: 80, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolUDP},
			},
		}}
		change(&s.Spec)
		return s
	}
	return []*corev1.Service{
		make("web", func(*corev1.ServiceSpec) {}),
		make("local", func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }),
		make("sticky", func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }),
		make("nobody", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "nobody"} }),
	}
}

// replacePods has the Deployment replace all pods.
func (c *cluster) replacePods(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"at":%q}}}}}`, time.Now())
	if _, err := c.client.AppsV1().Deployments("default").Patch(t.Context(), "hello", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all pods are replaced", func() bool { return c.available(t) })
}
