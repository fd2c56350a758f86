package watch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// TestHeadless: routes lead to what headless Services have, too.
func TestHeadless(t *testing.T) {
	port, name, protocol := int32(8080), "http", corev1.ProtocolTCP
	trimmed, err := (&Watch{}).trim(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", corev1.IsHeadlessService: "",
		}},
		AddressType: discoveryv1.AddressTypeIPv6,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"2001:db8::1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := compile.New(compile.Config{})
	c.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: name, Port: 80, Protocol: protocol}}},
	})
	c.SetSlice(trimmed.(*discoveryv1.EndpointSlice))
	list := c.Takers(types.NamespacedName{Namespace: "shop", Name: "web"}, name, model.TCP)
	if len(list) != 1 || list[0].Addr.String() != "2001:db8::1" || list[0].Port != 8080 {
		t.Errorf("endpoints %v", list)
	}
}

// TestTrim: of Secrets and ConfigMaps only what is read stays.
func TestTrim(t *testing.T) {
	s := &corev1.Secret{Data: map[string][]byte{"tls.crt": nil, "tls.key": nil, "password": nil}}
	m := &corev1.ConfigMap{Data: map[string]string{"ca.crt": "", "other": ""}, BinaryData: map[string][]byte{"x": nil}}
	for _, o := range []any{s, m} {
		if _, err := (&Watch{}).trim(o); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Data) != 2 || len(m.Data) != 1 || m.BinaryData != nil {
		t.Errorf("what stays is %v, %v", s, m)
	}
}
