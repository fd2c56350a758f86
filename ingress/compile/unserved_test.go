package compile

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestUnserved: what nobody serves is a problem of its own, and known by its host. What another
// controller may serve is none.
func TestUnserved(t *testing.T) {
	class := func(name, controller string, annotations map[string]string) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: networkingv1.IngressClassSpec{Controller: controller}}
	}
	ours := class("fairway", IngressController, nil)
	ingress := func(class string, annotations map[string]string) *networkingv1.Ingress {
		o := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotations}}
		o.Spec.Rules = []networkingv1.IngressRule{{Host: "A.example.com"}, {Host: "*.b.example.com"}}
		if class != "" {
			o.Spec.IngressClassName = &class
		}
		return o
	}
	old := map[string]string{"kubernetes.io/ingress.class": "nginx"}
	for _, c := range []struct {
		what    string
		classes []*networkingv1.IngressClass
		object  *networkingv1.Ingress
		want    string
	}{
		{"no class", []*networkingv1.IngressClass{ours}, ingress("", nil), "nobody serves it: it names no class, and no IngressClass is the default; spec.ingressClassName: fairway has Fairway serve it"},
		{"a typo", []*networkingv1.IngressClass{ours}, ingress("farway", nil), `nobody serves it: there is no IngressClass "farway"; spec.ingressClassName: fairway has Fairway serve it`},
		{"a typo, no classes", nil, ingress("farway", nil), `nobody serves it: there is no IngressClass "farway"`},
		{"ours", []*networkingv1.IngressClass{ours}, ingress("fairway", nil), ""},
		{"the default", []*networkingv1.IngressClass{class("fairway", IngressController, map[string]string{isDefaultClass: "true"})}, ingress("", nil), ""},
		{"another's", []*networkingv1.IngressClass{ours, class("nginx", "k8s.io/ingress-nginx", nil)}, ingress("nginx", nil), ""},
		{"perhaps another's", []*networkingv1.IngressClass{ours, class("nginx", "k8s.io/ingress-nginx", nil)}, ingress("", nil), ""},
		{"by annotation", []*networkingv1.IngressClass{ours}, ingress("", old), ""},
	} {
		out := Compile(&Objects{IngressClasses: c.classes, Ingresses: []*networkingv1.Ingress{c.object}}, Options{})
		got := ""
		for _, p := range out.Unserved("a.example.com") {
			got += p.Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if len(out.Unserved("x.b.example.com")) != len(out.Unserved("a.example.com")) || len(out.Unserved("c.example.com")) > 0 {
			t.Errorf("%s: %v for another host", c.what, out.Unserved("c.example.com"))
		}
	}
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gw"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "farway"}}
	out := Compile(&Objects{Gateways: []*gatewayv1.Gateway{gateway}}, Options{})
	if list := out.Unserved("any.example.com"); len(list) != 1 || list[0].Kind != "Gateway" {
		t.Errorf("of a Gateway: %v", list)
	}
}

// TestOrphans: a route whose Gateways are all missing is a problem; one with another parent is none.
func TestOrphans(t *testing.T) {
	service, other := gatewayv1.Kind("Service"), gatewayv1.Namespace("other")
	core := gatewayv1.Group("")
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gw"}}
	for _, c := range []struct {
		what    string
		parents []gatewayv1.ParentReference
		want    string
	}{
		{"none", nil, "nobody serves it: spec.parentRefs names no Gateway"},
		{"a typo", []gatewayv1.ParentReference{{Name: "gv"}, {Name: "gw", Namespace: &other}}, "nobody serves it: there is no Gateway default/gv and no Gateway other/gw"},
		{"one that is there", []gatewayv1.ParentReference{{Name: "gv"}, {Name: "gw"}}, ""},
		{"a Service", []gatewayv1.ParentReference{{Name: "gv", Kind: &service, Group: &core}}, ""},
	} {
		route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: c.parents}}}
		got := ""
		for _, p := range Compile(&Objects{Gateways: []*gatewayv1.Gateway{gateway}, HTTPRoutes: []*gatewayv1.HTTPRoute{route}}, Options{}).Problems {
			if p.Kind == "HTTPRoute" && p.Reason == ReasonNothingActs {
				got += p.Message
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
