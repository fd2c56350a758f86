package compile

import (
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestSemanticsNamesEveryField: docs/reference/semantics.md says of every field what it
// means, of those too that a newer API brings.
func TestSemanticsNamesEveryField(t *testing.T) {
	data, err := os.ReadFile("../docs/reference/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, v := range []any{
		corev1.ServiceSpec{}, corev1.ServicePort{}, corev1.LoadBalancerIngress{}, corev1.SessionAffinityConfig{}, corev1.ClientIPConfig{},
		discoveryv1.Endpoint{}, discoveryv1.EndpointConditions{}, discoveryv1.EndpointHints{}, discoveryv1.EndpointPort{},
	} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(text, name) {
				t.Errorf("%s.%s is not in docs/reference/semantics.md", typ.Name(), name)
			}
		}
	}
	for _, annotation := range []string{AnnotationScheduler, AnnotationWeights, AnnotationWeight, AnnotationBackup, AnnotationOrphans, AnnotationDirectReturn, AnnotationStableFlows, labelProxyName, corev1.AnnotationLoadBalancerSourceRangesKey} {
		if !strings.Contains(text, "`"+annotation+"`") {
			t.Errorf("%s is not in docs/reference/semantics.md", annotation)
		}
	}
}
