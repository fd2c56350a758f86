package engines

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/model"
)

// TestLacks: a rule that an engine can't serve as it is written answers 500, its
// route says why, and there is an Event; the other rules go on, and so does all of
// it with an engine that can.
func TestLacks(t *testing.T) {
	read := func(text string, into any) {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	class, gw, route := &gatewayv1.GatewayClass{}, &gatewayv1.Gateway{}, &gatewayv1.HTTPRoute{}
	read(`{metadata: {name: fairway}, spec: {controllerName: fairway.dev/gateway}}`, class)
	read(`{metadata: {name: gw, namespace: ns}, spec: {gatewayClassName: fairway, listeners: [{name: http, port: 80, protocol: HTTP}]}}`, gw)
	read(`
metadata: {name: r, namespace: ns}
spec:
  parentRefs: [{name: gw}]
  rules:
  - {backendRefs: [{name: web, port: 80}]}
  - matches: [{path: {value: /mirrored}}]
    filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}}}]
    backendRefs: [{name: web, port: 80}]
  - {matches: [{path: {value: /slow}}], timeouts: {request: 1s}, backendRefs: [{name: web, port: 80}]}
`, route)
	objects := &ingress.Objects{
		Classes: []*gatewayv1.GatewayClass{class}, Gateways: []*gatewayv1.Gateway{gw}, HTTPRoutes: []*gatewayv1.HTTPRoute{route},
		Namespaces: map[string]*corev1.Namespace{"ns": {ObjectMeta: metav1.ObjectMeta{Name: "ns"}}},
		Services: map[types.NamespacedName]*corev1.Service{{Namespace: "ns", Name: "web"}: {
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}},
	}
	for engine, want := range map[string]map[string]int{
		Native:  {"/": 0, "/mirrored": 0, "/slow": 0},
		HAProxy: {"/": 0, "/mirrored": 500, "/slow": 500},
	} {
		out := ingress.Compile(objects, ingress.Options{
			Lacks: Lacks(engine),
			Bind:  func(types.NamespacedName, uint16) netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:80") },
		})
		for path, status := range want {
			if d := out.Table.Sockets[0].Decide(&model.Request{Host: "h", Path: path}); d.Status != status {
				t.Errorf("%s: %s: decided %d (%s), want %d", engine, path, d.Status, d.Reason, status)
			}
		}
		parents := out.Routes[ingress.RouteKey{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: "ns", Name: "r"}}]
		var partial string
		for _, c := range parents[0].Conditions {
			if c.Type == string(gatewayv1.RouteConditionPartiallyInvalid) {
				partial = c.Message
			}
		}
		if (engine == HAProxy) != strings.Contains(partial, "spec.rules[1]: haproxy can't mirror requests") || (engine == HAProxy) != (len(out.Problems) == 1) {
			t.Errorf("%s: condition %q, problems %v", engine, partial, out.Problems)
		}
		mirror := false
		for _, f := range ingress.Features(Lacks(engine)) {
			mirror = mirror || f.Name == "HTTPRouteRequestMirror"
		}
		if mirror != (engine == Native) {
			t.Errorf("%s: the feature of mirrors is supported: %t", engine, mirror)
		}
	}
	if Check("nginx") == nil || Check(HAProxy) != nil {
		t.Error("names of engines are not checked")
	}
}
