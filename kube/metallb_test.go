package kube

import (
	"testing"

	"k8s.io/client-go/rest"
)

// TestMetalLBRate: status objects of many Services don't wait for each other as client-go's
// default has it, unless the configuration says how often may be asked.
func TestMetalLBRate(t *testing.T) {
	for given, want := range map[float32]float32{0: statusQPS, 7: 7} {
		m, err := NewMetalLB(&rest.Config{Host: "http://127.0.0.1:1", QPS: given})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.V1beta1.GetRateLimiter().QPS(); got != want {
			t.Errorf("given %v: %v requests a second, want %v", given, got, want)
		}
	}
}
