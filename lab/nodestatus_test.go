package lab

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/lab/topology"
)

// TestNodeStatus: a node has what kubectl describe divides by; without it, it printed
// -9223372036854775808 % of it as used.
func TestNodeStatus(t *testing.T) {
	s := nodeStatus(&topology.Node{Host: &topology.Host{}})
	for _, what := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if q := s.Allocatable[what]; q.Value() <= 0 {
			t.Errorf("allocatable %s: %s", what, q.String())
		}
	}
}
