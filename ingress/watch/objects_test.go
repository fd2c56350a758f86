package watch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/compile"
	ingress "github.com/fairway-net/fairway/ingress/compile"
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
	list := c.ReadyBackends(types.NamespacedName{Namespace: "shop", Name: "web"}, name, model.TCP)
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

// TestLean: what an engine keeps of objects is what it serves by.
func TestLean(t *testing.T) {
	w := &Watch{lean: true}
	kept, err := w.trim(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "fairway.dev/proxy-protocol": "v1"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := kept.(*corev1.Service)
	if s.Spec.Selector != nil || len(s.Spec.Ports) != 1 || len(s.Annotations) != 1 || s.Labels != nil {
		t.Errorf("what is kept is %+v", s)
	}
}

// TestStatusOnly: an object whose status alone has changed is none that has.
func TestStatusOnly(t *testing.T) {
	w := &Watch{changed: make(chan struct{}, 1), changes: newChanges(), choice: compile.New(compile.Config{})}
	before := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1}}
	after := before.DeepCopy()
	after.Status.Parents = []gatewayv1.RouteParentStatus{{}}
	w.happened(before, after)
	if c := w.Take(); !c.None() {
		t.Errorf("a status changed, and so did %+v", c)
	}
	next := after.DeepCopy()
	next.Generation = 2
	w.happened(after, next)
	w.happened(next, next) // what comes later doesn't hide it
	if c := w.Take(); len(c.HTTPRoutes) != 1 || c.Everything {
		t.Errorf("a route changed, and so did %+v", c)
	}
	w.happened(next, nil)
	c := w.Take()
	if r, gone := c.HTTPRoutes[types.NamespacedName{Namespace: "shop", Name: "web"}]; !gone || r != nil {
		t.Errorf("a route has gone, and so did %+v", c)
	}
	w.happened(&corev1.Secret{Data: map[string][]byte{"tls.crt": {1}}}, &corev1.Secret{Data: map[string][]byte{"tls.crt": {1}}})
	if c := w.Take(); !c.None() {
		t.Errorf("nothing of a Secret that is read changed, and so did %+v", c)
	}
}

// TestFilters: listeners that have filters, which the types don't know, are noted.
func TestFilters(t *testing.T) {
	managed := func(text string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(text)}, {}}
	}
	for _, test := range []struct{ fields, want string }{
		{`{"f:spec":{"f:listeners":{".":{},"k:{\"name\":\"b\"}":{".":{},"f:filters":{"f:requests":{}}},"k:{\"name\":\"a\"}":{"f:filters":{}},"k:{\"name\":\"c\"}":{"f:port":{}}}}}`, "a,b"},
		{`{"f:spec":{"f:listeners":{"k:{\"name\":\"c\"}":{"f:port":{}}}}}`, ""},
		{`{"f:metadata":{"f:annotations":{"f:filters":{}}}}`, ""},
		{`"f:filters"`, ""},
	} {
		for _, o := range []metav1.Object{&gatewayv1.Gateway{}, &gatewayv1.ListenerSet{}} {
			o.SetManagedFields(managed(test.fields))
			o.SetAnnotations(map[string]string{ingress.AnnotationFilters: "said"})
			if _, err := (&Watch{}).trim(o); err != nil {
				t.Fatal(err)
			}
			if got := o.GetAnnotations()[ingress.AnnotationFilters]; got != test.want || o.GetManagedFields() != nil {
				t.Errorf("%s: listeners %q, want %q", test.fields, got, test.want)
			}
		}
	}
}
