package addresses

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Services of another class are left alone: MetalLB's marks are like ours.
func TestClasses(t *testing.T) {
	tests := []struct {
		kind           corev1.ServiceType
		its            *string
		ours           string
		wants, another bool
	}{
		{corev1.ServiceTypeLoadBalancer, nil, "", true, false},
		{corev1.ServiceTypeLoadBalancer, ptr.To("x.example/y"), "x.example/y", true, false},
		{corev1.ServiceTypeLoadBalancer, ptr.To("x.example/y"), "", false, true},
		{corev1.ServiceTypeLoadBalancer, nil, "x.example/y", false, true},
		{corev1.ServiceTypeClusterIP, nil, "", false, false},
		{corev1.ServiceTypeClusterIP, nil, "x.example/y", false, false},
	}
	for _, test := range tests {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: test.kind, LoadBalancerClass: test.its}}
		if got := wants(s, test.ours); got != test.wants {
			t.Errorf("%+v: wanted %v", test, got)
		}
		if got := isOfAnotherClass(s, test.ours); got != test.another {
			t.Errorf("%+v: another's %v", test, got)
		}
	}
}
