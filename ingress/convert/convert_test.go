package convert_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/convert"
	"github.com/fairway-net/fairway/ingress/model"
)

// ingresses are converted and must mean the same afterwards.
const ingresses = `
metadata: {name: paths, namespace: shop}
spec:
  rules:
  - host: shop.example.com
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}
      - {path: /api, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}
      - {path: /api/exact, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}
  - host: "*.wild.example.com"
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}]}
---
metadata: {name: fallback, namespace: shop}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
metadata: {name: secure, namespace: shop, annotations: {nginx.ingress.kubernetes.io/proxy-read-timeout: "7"}}
spec:
  tls: [{hosts: [secure.example.com], secretName: cert}]
  rules: [{host: secure.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
metadata: {name: both, namespace: shop, annotations: {nginx.ingress.kubernetes.io/ssl-redirect: "false"}}
spec:
  tls: [{hosts: [both.example.com], secretName: cert}]
  rules: [{host: both.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}]}}]
---
metadata: {name: strip, namespace: shop, annotations: {nginx.ingress.kubernetes.io/rewrite-target: /in/$2, nginx.ingress.kubernetes.io/upstream-vhost: inside}}
spec: {rules: [{host: strip.example.com, http: {paths: [{path: /app(/|$)(.*), pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: strip-one, namespace: shop, annotations: {nginx.ingress.kubernetes.io/rewrite-target: /$1}}
spec: {rules: [{host: one.example.com, http: {paths: [{path: /app/(.*), pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: whole, namespace: shop, annotations: {nginx.ingress.kubernetes.io/rewrite-target: /}}
spec: {rules: [{host: whole.example.com, http: {paths: [{path: /old, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: pattern, namespace: shop, annotations: {nginx.ingress.kubernetes.io/use-regex: "true"}}
spec: {rules: [{host: pattern.example.com, http: {paths: [{path: "/item/[0-9]+", pathType: ImplementationSpecific, backend: {service: {name: api, port: {number: 80}}}}]}}]}
---
metadata: {name: within, namespace: shop, annotations: {nginx.ingress.kubernetes.io/permanent-redirect: /here}}
spec: {rules: [{host: within.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: moved, namespace: shop, annotations: {nginx.ingress.kubernetes.io/permanent-redirect: "https://new.example.com/here"}}
spec: {rules: [{host: moved.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: stable, namespace: shop}
spec: {rules: [{host: canary.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: canary, namespace: shop, annotations: {nginx.ingress.kubernetes.io/canary: "true", nginx.ingress.kubernetes.io/canary-by-header: Try}}
spec: {rules: [{host: canary.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}]}}]}
---
metadata: {name: cors, namespace: shop, annotations: {nginx.ingress.kubernetes.io/enable-cors: "true", nginx.ingress.kubernetes.io/cors-allow-origin: "https://a.example.com"}}
spec: {rules: [{host: cors.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`

var (
	hosts = []string{
		"shop.example.com", "x.wild.example.com", "other.example.net", "secure.example.com", "both.example.com", "strip.example.com",
		"one.example.com", "whole.example.com", "pattern.example.com", "moved.example.com", "canary.example.com", "cors.example.com",
	}
	paths = []string{"/", "/api", "/api/x", "/apix", "/api/exact", "/app", "/app/", "/app/x/y", "/old", "/item/12/more", "/ITEM/7", "/item/x"}
)

func read(t *testing.T, text string) []*networkingv1.Ingress {
	t.Helper()
	var list []*networkingv1.Ingress
	for part := range strings.SplitSeq(text, "---\n") {
		o := &networkingv1.Ingress{}
		if err := yaml.UnmarshalStrict([]byte(part), o); err != nil {
			t.Fatal(err)
		}
		class := "nginx"
		o.Spec.IngressClassName = &class
		list = append(list, o)
	}
	return list
}

// around is what Ingresses and routes refer to.
func around(t *testing.T) *compile.Objects {
	t.Helper()
	pem, key, err := cert.GenerateSelfSignedCertKey("secure.example.com", nil, []string{"both.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	secret := types.NamespacedName{Namespace: "shop", Name: "cert"}
	o := &compile.Objects{
		Namespaces: map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, Services: map[types.NamespacedName]*corev1.Service{},
		Secrets: map[types.NamespacedName]*corev1.Secret{secret: {
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cert"}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: pem, corev1.TLSPrivateKeyKey: key},
		}},
		Classes:        []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: compile.Controller}}},
		IngressClasses: []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}, Spec: networkingv1.IngressClassSpec{Controller: compile.IngressController}}},
	}
	for _, name := range []string{"web", "api"} {
		o.Services[types.NamespacedName{Namespace: "shop", Name: name}] = &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
		}
	}
	return o
}

// decisions says in a line each what becomes of every request.
func decisions(t *testing.T, o *compile.Objects) []string {
	t.Helper()
	out := compile.Compile(o, compile.Options{Endpoints: func(types.NamespacedName, *corev1.ServicePort) []model.Endpoint {
		return []model.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}}
	}})
	for _, p := range out.Problems {
		t.Error(p)
	}
	var lines []string
	for _, secure := range []bool{false, true} {
		for _, host := range hosts {
			for _, path := range paths {
				for _, header := range []http.Header{{}, {"Try": {"always"}}} {
					r := &model.Request{TLS: secure, Method: http.MethodGet, Host: host, ServerName: host, Path: path, Header: header}
					lines = append(lines, fmt.Sprintf("%t %s%s %v: %s", secure, host, path, header, decision(out.Table, r)))
				}
			}
		}
	}
	return lines
}

func decision(table *model.Table, r *model.Request) string {
	at := slices.IndexFunc(table.Sockets, func(s *model.Socket) bool { return s.TLS == r.TLS })
	d := table.Sockets[at].Decide(r)
	if d.Status != 0 {
		return fmt.Sprintf("%d %s", d.Status, d.Location)
	}
	a := d.Rule.Action
	text := fmt.Sprintf("to %s within %s", a.Backends[0].Pool, a.BackendTimeout)
	if a.Rewrite != nil {
		text += fmt.Sprintf(", host %q, path %s", a.Rewrite.Host, a.Rewrite.Path.Apply(r.Path, &d.Rule.Match))
	}
	if a.CORS != nil {
		same := *a.CORS
		same.Literal = false // the one difference, in the answer's words
		text += fmt.Sprintf(", CORS %+v", same)
	}
	return text
}

// TestSameMeaning: of Ingresses and of what they become, the same requests have
// the same decisions.
func TestSameMeaning(t *testing.T) {
	before, after := around(t), around(t)
	before.Ingresses = read(t, ingresses)
	result := convert.Convert(before.Ingresses, convert.Options{GatewayClass: "fairway", Gateway: "ingress", Services: after.Services})
	after.Gateways, after.HTTPRoutes = result.Gateways, result.Routes
	want, got := decisions(t, before), decisions(t, after)
	different := 0
	for i := range want {
		if named := strings.HasSuffix(want[i], ": 404 ") || strings.Contains(got[i], "strip.example.com/app map") || strings.Contains(got[i], "one.example.com/app map"); got[i] != want[i] && !named {
			different++
			t.Errorf("%s\n    was  %s", got[i], want[i])
		}
	}
	if different == 0 && len(want) < 500 {
		t.Errorf("only %d requests", len(want))
	}
	if left := []string{
		"Ingress shop/cors: annotation nginx.ingress.kubernetes.io/enable-cors: OPTIONS that are no browser's preflight go to the backend; ingress-nginx answered them",
		"Ingress shop/paths: host *.wild.example.com: in Gateway API * stands for one label or more, not for one",
		"Ingress shop/secure: annotation nginx.ingress.kubernetes.io/proxy-read-timeout: is left out: it is the longest pause of an answer, and backendRequest of a route is the time for the whole of it",
		"Ingress shop/strip: path /app(/|$)(.*): /app itself becomes /in, without the slash that it got",
		"Ingress shop/strip-one: path /app/(.*): a route matches /app itself as well",
		"host one.example.com: with use-regex or rewrite-target, all of its paths were read in any case, and by how they begin; in routes, /app is whole elements, in this case",
		"host strip.example.com: with use-regex or rewrite-target, all of its paths were read in any case, and by how they begin; in routes, /app is whole elements, in this case",
		"host whole.example.com: with use-regex or rewrite-target, all of its paths were read in any case, and by how they begin; in routes, /old is whole elements, in this case",
		"host one.example.com: requests that no rule matches go to the routes of any host; Ingresses answered 404",
		"host pattern.example.com: requests that no rule matches go to the routes of any host; Ingresses answered 404",
		"host strip.example.com: requests that no rule matches go to the routes of any host; Ingresses answered 404",
		"host whole.example.com: requests that no rule matches go to the routes of any host; Ingresses answered 404",
	}; !slices.Equal(slices.Sorted(slices.Values(result.Left)), slices.Sorted(slices.Values(left))) {
		t.Errorf("left: %q", result.Left)
	}
}

// TestLeft: what can't be converted is named, and what protects isn't opened.
func TestLeft(t *testing.T) {
	list := read(t, `
metadata: {name: closed, namespace: a, annotations: {nginx.ingress.kubernetes.io/auth-type: basic, nginx.ingress.kubernetes.io/auth-secret: s}}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
metadata: {name: listed, namespace: a, annotations: {nginx.ingress.kubernetes.io/whitelist-source-range: 192.0.2.0/24}}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
metadata: {name: odd, namespace: a, annotations: {nginx.ingress.kubernetes.io/server-snippet: x, nginx.ingress.kubernetes.io/backend-protocol: HTTPS, nginx.ingress.kubernetes.io/novel: x, serviceloadbalancer/lb.algorithm: source}}
spec:
  tls: [{hosts: [h]}]
  defaultBackend: {service: {name: gone, port: {name: http}}}
  rules: [{host: h, http: {paths: [{path: /, pathType: Prefix, backend: {resource: {kind: Bucket, name: b}}}]}}]
---
metadata: {name: groups, namespace: a, annotations: {nginx.ingress.kubernetes.io/rewrite-target: /$1/$2}}
spec: {rules: [{host: h, http: {paths: [{path: "/(a)/(b)", pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: lone, namespace: a, annotations: {nginx.ingress.kubernetes.io/canary: "true", nginx.ingress.kubernetes.io/canary-weight: "5"}}
spec: {rules: [{host: h, http: {paths: [{path: /lone, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: protected, namespace: a, annotations: {nginx.ingress.kubernetes.io/auth-url: "http://auth.a.svc"}}
spec: {rules: [{host: h, http: {paths: [{path: /guarded, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: guarded, namespace: a, annotations: {nginx.ingress.kubernetes.io/canary: "true", nginx.ingress.kubernetes.io/canary-by-header: try}}
spec: {rules: [{host: h, http: {paths: [{path: /guarded, pathType: Prefix, backend: {service: {name: next, port: {number: 80}}}}]}}]}
---
metadata: {name: baked, namespace: a, annotations: {nginx.ingress.kubernetes.io/canary: "true", nginx.ingress.kubernetes.io/canary-by-cookie: try}}
spec: {rules: [{host: h, http: {paths: [{path: /guarded, pathType: Prefix, backend: {service: {name: next, port: {number: 80}}}}]}}]}
`)
	result := convert.Convert(list, convert.Options{GatewayClass: "fairway", Gateway: "ingress"})
	if len(result.Routes) > 0 || len(result.Gateways) > 0 {
		t.Errorf("converted all the same: %d routes", len(result.Routes))
	}
	left := strings.Join(result.Left, "\n")
	for _, want := range []string{
		"a/closed: annotation nginx.ingress.kubernetes.io/auth-type protects it", "a/listed: annotation nginx.ingress.kubernetes.io/whitelist-source-range protects it",
		"a/odd: annotation nginx.ingress.kubernetes.io/server-snippet: is left out: use a rule", "BackendTLSPolicy", "annotation nginx.ingress.kubernetes.io/novel: is left out",
		"annotation serviceloadbalancer/lb.algorithm", "spec.tls[0].secretName: is empty", "spec.defaultBackend.backend.service.port.name",
		"spec.rules[0].http.paths[0].backend.resource", "path /(a)/(b) with rewrite-target /$1/$2",
		"a/lone: spec.rules[0].http.paths[0]: no other Ingress of the namespace has host", "a/guarded: spec.rules[0].http.paths[0]: Ingress protected, of which it is the canary, is not converted",
		"a/baked: annotation nginx.ingress.kubernetes.io/canary: canary-by-cookie: match the header Cookie",
	} {
		if !strings.Contains(left, want) {
			t.Errorf("no %q in\n%s", want, left)
		}
	}
}

// TestForeignAnnotations: those of other programs are kept where these look, or named.
func TestForeignAnnotations(t *testing.T) {
	list := read(t, `
metadata: {name: web, namespace: a, annotations: {cert-manager.io/cluster-issuer: le, external-dns.alpha.kubernetes.io/hostname: h, kubectl.kubernetes.io/last-applied-configuration: x, example.com/x: y, nginx.ingress.kubernetes.io/proxy-buffering: "off"}}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
`)
	result := convert.Convert(list, convert.Options{GatewayClass: "fairway", Gateway: "ingress"})
	if got := result.Gateways[0].Annotations; len(got) != 1 || got["cert-manager.io/cluster-issuer"] != "le" {
		t.Errorf("the Gateway has %v", got)
	}
	if got := result.Routes[0].Annotations; len(got) != 1 || got["external-dns.alpha.kubernetes.io/hostname"] != "h" {
		t.Errorf("the route has %v", got)
	}
	left := strings.Join(result.Left, "\n")
	if len(result.Left) != 2 || !strings.Contains(left, "example.com/x: is left out") || !strings.Contains(left, "proxy-buffering: is left out: bodies are passed on as they come") {
		t.Errorf("left %s", left)
	}
}

// TestOrigins: what of origins and redirects routes don't take is said.
func TestOrigins(t *testing.T) {
	list := read(t, `
metadata: {name: web, namespace: a, annotations: {nginx.ingress.kubernetes.io/enable-cors: "true", nginx.ingress.kubernetes.io/cors-allow-origin: "a.example, https://*.b.example, ,https://c.example"}}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
metadata: {name: moved, namespace: a, annotations: {nginx.ingress.kubernetes.io/permanent-redirect: "https://new.example$request_uri"}}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
`)
	result := convert.Convert(list, convert.Options{GatewayClass: "fairway", Gateway: "ingress"})
	web := result.Routes[slices.IndexFunc(result.Routes, func(r *gatewayv1.HTTPRoute) bool { return r.Name == "web" })]
	if got := fmt.Sprint(web.Spec.Rules[0].Filters[0].CORS.AllowOrigins); got != "[https://*.b.example https://c.example]" {
		t.Errorf("origins %s", got)
	}
	left := strings.Join(result.Left, "\n")
	for _, want := range []string{`"a.example" is left out: an origin has a scheme`, `the asterisk stands for one label`, "has variables, which redirects of routes haven't"} {
		if !strings.Contains(left, want) {
			t.Errorf("no %q in\n%s", want, left)
		}
	}
}

// TestManyPaths: routes have 16 rules at most, and names of their own.
func TestManyPaths(t *testing.T) {
	list := read(t, "metadata: {name: many, namespace: a}\n---\nmetadata: {name: many-2, namespace: a}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n")
	kind := networkingv1.PathTypeExact
	rule := networkingv1.IngressRule{Host: "h", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{}}}
	for i := range 40 {
		rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{
			Path: fmt.Sprintf("/%d", i), PathType: &kind,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		})
	}
	list[0].Spec.Rules = []networkingv1.IngressRule{rule}
	var names []string
	rules := 0
	for _, r := range convert.Convert(list, convert.Options{GatewayClass: "fairway", Gateway: "ingress"}).Routes {
		names = append(names, r.Name)
		rules += len(r.Spec.Rules)
	}
	if want := []string{"many", "many-2", "many-3", "many-2-2"}; !slices.Equal(names, want) || rules != 41 {
		t.Errorf("routes %v with %d rules", names, rules)
	}
}

// TestCanary: a canary is a part of its main Ingress's route, with all that asks of clients.
func TestCanary(t *testing.T) {
	list := read(t, `
metadata: {name: main, namespace: a, annotations: {nginx.ingress.kubernetes.io/upstream-vhost: inside}}
spec: {rules: [{host: h, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
metadata: {name: next, namespace: a, annotations: {nginx.ingress.kubernetes.io/canary: "true", nginx.ingress.kubernetes.io/canary-weight: "30", nginx.ingress.kubernetes.io/canary-by-header: try}}
spec: {rules: [{host: h, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: next, port: {number: 80}}}}]}}]}
`)
	result := convert.Convert(list, convert.Options{GatewayClass: "fairway", Gateway: "gw"})
	if len(result.Left) > 0 || len(result.Routes) != 1 || len(result.Routes[0].Spec.Rules) != 3 {
		t.Fatalf("%d routes, left %q", len(result.Routes), result.Left)
	}
	for i, want := range []string{" web*70 next*30", "try=always next*1", "try=never web*1"} {
		rule, got := result.Routes[0].Spec.Rules[i], ""
		for _, h := range rule.Matches[0].Headers {
			got = string(h.Name) + "=" + h.Value
		}
		for _, b := range rule.BackendRefs {
			weight := int32(1)
			if b.Weight != nil {
				weight = *b.Weight
			}
			got += fmt.Sprintf(" %s*%d", b.Name, weight)
		}
		if got != want || len(rule.Filters) != 1 {
			t.Errorf("rule %d is %q with %d filters, want %q", i, got, len(rule.Filters), want)
		}
	}
}
