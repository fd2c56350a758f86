package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/endpointslice"
	"k8s.io/utils/ptr"
)

// TestTrimKeepsPorts looks named ports up before and after trimming.
func TestTrimKeepsPorts(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{ContainerPort: 1, Protocol: "TCP"}, {Name: "web", ContainerPort: 2, Protocol: "TCP"}}},
			{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 3, Protocol: "UDP"}, {Name: "both", ContainerPort: 4, Protocol: "TCP"}}},
		},
		InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "setup", ContainerPort: 5, Protocol: "TCP"}}},
			{Ports: []corev1.ContainerPort{{Name: "mesh", ContainerPort: 6, Protocol: "TCP"}, {Name: "both", ContainerPort: 7, Protocol: "TCP"}}, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			{Ports: []corev1.ContainerPort{{Name: "later", ContainerPort: 8, Protocol: "TCP"}}},
		},
	}}
	trimmed := trimPod(pod)
	for _, name := range []string{"web", "both", "setup", "mesh", "later", "none"} {
		for _, protocol := range []corev1.Protocol{"TCP", "UDP"} {
			port := &corev1.ServicePort{Protocol: protocol, TargetPort: intstr.FromString(name)}
			want, wantErr := endpointslice.FindPort(pod, port)
			got, err := endpointslice.FindPort(trimmed, port)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Errorf("%s %s is %d (%v) after trimming, %d (%v) before", protocol, name, got, err, want, wantErr)
			}
		}
	}
}

// TestTrimKeepsWhatMatters compares what decides whether a Pod's endpoint changes.
func TestTrimKeepsWhatMatters(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u", Labels: map[string]string{"app": "web"},
			DeletionTimestamp: ptr.To(metav1.Now()), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec: corev1.PodSpec{NodeName: "n1", Hostname: "h", Subdomain: "s", Containers: []corev1.Container{{Image: "echo"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	trimmed := trimPod(pod)
	if endpointChanged(pod, trimmed) {
		t.Errorf("trimming changes the endpoint of %v to that of %v", pod, trimmed)
	}
	if len(trimmed.ManagedFields)+len(trimmed.Spec.Containers) > 0 || len(trimmed.Status.Conditions) != 1 {
		t.Errorf("trimmed Pod still has %v", trimmed)
	}
}
