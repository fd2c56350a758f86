package doctor

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// TestNobodyAnnounces: what nodes say proves that nobody announces an address only where no
// other program may.
func TestNobodyAnnounces(t *testing.T) {
	a := netip.MustParseAddr("10.77.0.100")
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{v1beta1.AnnotationFromPool: "pool"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: a.String()}}
	for name, c := range map[string]struct {
		said []Announced
		want string // of the finding; "" is none
	}{
		"one announces":              {[]Announced{{Node: "n1"}, {Node: "n1", Address: a, By: "n1"}, {Node: "n2", Off: true}}, ""},
		"no advertisement":           {[]Announced{{Node: "n1"}, {Node: "n1", Address: a, WhyNot: "no advertisement selects it"}}, "n1: no advertisement selects it"},
		"MetalLB's speaker does":     {[]Announced{{Node: "n1", Rival: true, WhyNot: "a MetalLB speaker runs"}, {Node: "n2", Off: true}}, ""},
		"no agent announces":         {[]Announced{{Node: "n1", Off: true, WhyNot: "without --announce"}, {Node: "n2", Off: true}}, "unless another program does"},
		"one that couldn't be asked": {[]Announced{{Node: "n1"}, {Node: "n1", Address: a, Owner: "n3", WhyNot: "node n3 announces it"}}, ""},
		"the owner says it doesn't": {[]Announced{{Node: "n1"}, {Node: "n1", Address: a, Owner: "n3", WhyNot: "node n3 announces it"},
			{Node: "n3"}, {Node: "n3", Address: a, Owner: "n3", WhyNot: "asking first"}}, "n3: asking first"},
		"one agent announces not": {[]Announced{{Node: "n1", Off: true}, {Node: "n2"}, {Node: "n2", Address: a, WhyNot: "no carrier"}}, "n2: no carrier"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Unannounced(t.Context(), &Evidence{Objects: &explain.Objects{}, Service: s, Announced: c.said})
			if (got != "") != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
