package compile

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/ingress/model"
)

// tenants are two namespaces, shop and evil, each with the Services web and next, a
// certificate "pair", an authority of clients "ca", and the passwords "users".
func tenants(t *testing.T, text string) *Objects {
	t.Helper()
	o := &Objects{
		Namespaces: map[string]*corev1.Namespace{}, Services: map[types.NamespacedName]*corev1.Service{},
		Secrets: map[types.NamespacedName]*corev1.Secret{}, ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{},
		IngressClasses: []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}, Spec: networkingv1.IngressClassSpec{Controller: IngressController}}},
	}
	for _, namespace := range []string{"shop", "evil"} {
		at := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }
		for _, name := range []string{"web", "next"} {
			o.Services[at(name)] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{
				{Name: "quic", Port: 80, Protocol: corev1.ProtocolUDP}, {Name: "http", Port: 80, Protocol: corev1.ProtocolTCP},
			}}}
		}
		pair := aPair(t)
		o.Secrets[at("pair")] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pair"}, Data: pair}
		o.Secrets[at("ca")] = &corev1.Secret{Data: map[string][]byte{"ca.crt": aPair(t)[corev1.TLSCertKey]}}
		o.Secrets[at("users")] = &corev1.Secret{Data: map[string][]byte{"auth": []byte("me:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n")}}
	}
	class := "nginx"
	for i, part := range strings.Split(text, "\n---\n") {
		one := &networkingv1.Ingress{}
		if err := yaml.UnmarshalStrict([]byte(part), one); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		one.Spec.IngressClassName = &class
		one.CreationTimestamp = metav1.Unix(int64(1000+i), 0) // the oldest comes first
		for name, v := range one.Annotations {
			if !strings.Contains(name, "/") {
				delete(one.Annotations, name)
				one.Annotations[nginx+name] = v
			}
		}
		o.Ingresses = append(o.Ingresses, one)
	}
	return o
}

// becomes says what becomes of a request: "https://h/path Name: value".
func becomes(t *testing.T, table *model.Table, request string) string {
	t.Helper()
	url, header, _ := strings.Cut(request, " ")
	scheme, rest, _ := strings.Cut(url, "://")
	hostname, path, _ := strings.Cut(rest, "/")
	path, query, _ := strings.Cut(path, "?")
	r := &model.Request{TLS: scheme == "https", Method: http.MethodGet, Host: hostname, ServerName: hostname, Path: "/" + path, RawQuery: query, Header: http.Header{}}
	if name, v, found := strings.Cut(header, ": "); found {
		if r.Header.Set(name, v); name == "Scheme" {
			r.Scheme = v
		}
	}
	at := slices.IndexFunc(table.Sockets, func(s *model.Socket) bool { return s.TLS == r.TLS })
	if at < 0 {
		return "no socket"
	}
	if r.TLS {
		if l := table.Sockets[at].Listener(hostname); l == nil {
			return "no listener"
		} else if l.Mode == model.Passthrough {
			return "passed through to " + l.Hosts()[0].Rules[0].Action.Backends[0].Pool
		}
	}
	d := table.Sockets[at].Decide(r)
	out := ""
	switch {
	case d.Location != "":
		return fmt.Sprintf("%d to %s", d.Status, d.Location)
	case d.Status != 0:
		return fmt.Sprint(d.Status)
	}
	for i, b := range d.Rule.Action.Backends {
		if i > 0 {
			out += " or "
		}
		out += fmt.Sprintf("%s*%d", b.Pool, b.Weight)
	}
	a := d.Rule.Action
	for _, x := range []struct {
		name string
		is   bool
	}{{"password", a.BasicAuth != nil}, {"list", a.Allow != nil}, {"clients", d.Listener.Clients != nil}} {
		if x.is {
			out += " " + x.name
		}
	}
	if i := a.Identity; i != nil && i.Subject != nil {
		out += " " + i.Subject.String()
	}
	return out
}

// TestHosts: a host has an owner, and others add paths to it, nothing else.
func TestHosts(t *testing.T) {
	rule := func(hostname, path, kind, service string) string {
		return fmt.Sprintf("{host: %q, http: {paths: [{path: %q, pathType: %s, backend: {service: {name: %s, port: {number: 80}}}}]}}", hostname, path, kind, service)
	}
	ingress := func(namespace, name, annotations, tls string, rules ...string) string {
		return fmt.Sprintf("metadata: {namespace: %s, name: %s, annotations: {%s}}\nspec: {tls: [%s], rules: [%s]}", namespace, name, annotations, tls, strings.Join(rules, ", "))
	}
	for _, test := range []struct {
		name      string
		ingresses []string
		want      map[string]string // what becomes of requests
		problems  []string          // parts of what is told
	}{
		{
			"another namespace takes neither certificate nor clients over",
			[]string{
				ingress("shop", "web", "auth-tls-secret: shop/ca", "{hosts: [h.example.com], secretName: pair}", rule("h.example.com", "/", "Prefix", "web")),
				ingress("evil", "x", "auth-tls-secret: evil/ca", "{hosts: [h.example.com], secretName: pair}", rule("h.example.com", "/x", "Prefix", "web")),
			},
			map[string]string{"https://h.example.com/": "shop/web:80*1 clients", "https://h.example.com/x": "500", "http://h.example.com/": "308 to https://h.example.com/", "http://h.example.com/ Scheme: https": "500"},
			[]string{"evil/x Conflict host \"h.example.com\" belongs to Ingress shop/web, which decides the certificate", "which decides which clients are let in"},
		},
		{
			"TLS is the host's, and so is the redirect",
			[]string{
				ingress("shop", "web", "", "{hosts: [h.example.com], secretName: pair}", rule("h.example.com", "/", "Prefix", "web")),
				ingress("shop", "second", "auth-type: basic, auth-secret: users", "", rule("h.example.com", "/second", "Prefix", "next")),
				ingress("evil", "third", "", "", rule("h.example.com", "/third", "Prefix", "next")),
			},
			map[string]string{
				"https://h.example.com/second": "shop/next:80*1 password", "http://h.example.com/second": "308 to https://h.example.com/second",
				"https://h.example.com/third": "evil/next:80*1", "http://h.example.com/third": "308 to https://h.example.com/third",
				"http://h.example.com/third Scheme: https": "evil/next:80*1",
			}, nil,
		},
		{
			"a path may stay with http in the owner's namespace",
			[]string{
				ingress("shop", "web", "", "{hosts: [h.example.com], secretName: pair}", rule("h.example.com", "/", "Prefix", "web")),
				ingress("shop", "solver", "ssl-redirect: 'false'", "", rule("h.example.com", "/s", "Prefix", "next")),
				ingress("evil", "solver", "ssl-redirect: 'false'", "", rule("h.example.com", "/e", "Prefix", "next")),
			},
			map[string]string{"http://h.example.com/s": "shop/next:80*1", "http://h.example.com/e": "308 to https://h.example.com/e"},
			[]string{"evil/solver Conflict host \"h.example.com\" belongs to Ingress shop/web, which decides ssl-redirect"},
		},
		{
			"certificates match by what they cover, one label",
			[]string{
				ingress("shop", "web", "", "{hosts: ['*.example.com'], secretName: pair}", rule("wt.example.com", "/", "Prefix", "web"), rule("a.b.example.com", "/", "Prefix", "next")),
				ingress("shop", "wild", "", "", rule("*.foo.com", "/", "Prefix", "web")),
			},
			map[string]string{
				"https://wt.example.com/": "shop/web:80*1", "http://wt.example.com/": "308 to https://wt.example.com/", "https://a.b.example.com/": "no listener", "http://a.b.example.com/": "shop/next:80*1",
				"http://bar.foo.com/": "shop/web:80*1", "http://baz.bar.foo.com/": "404",
			}, nil,
		},
		{
			"passthrough is the owner's to say",
			[]string{
				ingress("shop", "web", "", "{hosts: [h.example.com], secretName: pair}", rule("h.example.com", "/api", "Prefix", "web")),
				ingress("evil", "x", "ssl-passthrough: 'true'", "", rule("h.example.com", "/", "Prefix", "web")),
				ingress("shop", "through", "ssl-passthrough: 'true'", "", rule("t.example.com", "/", "Prefix", "web")),
			},
			map[string]string{"https://h.example.com/api": "shop/web:80*1", "https://h.example.com/": "evil/web:80*1", "https://t.example.com/": "passed through to shop/web:80"},
			[]string{"evil/x Conflict host \"h.example.com\" belongs to Ingress shop/web, which decides ssl-passthrough"},
		},
		{
			"a canary is its main Ingress with another backend",
			[]string{
				ingress("shop", "web", "whitelist-source-range: 192.0.2.0/24, auth-type: basic, auth-secret: users", "", rule("h", "/", "Prefix", "web")),
				ingress("shop", "canary", "canary: 'true', canary-weight: '20', canary-by-header: Try, canary-by-cookie: try", "", rule("h", "/", "Prefix", "next")),
				ingress("evil", "canary", "canary: 'true', canary-weight: '100'", "", rule("h", "/", "Prefix", "next")),
			},
			map[string]string{
				"http://h/": "shop/web:80*80 or shop/next:80*20 password list", "http://h/ Try: always": "shop/next:80*1 password list", "http://h/ Try: never": "shop/web:80*1 password list",
				"http://h/ Try: x": "shop/web:80*80 or shop/next:80*20 password list", "http://h/ Cookie: try=never": "shop/web:80*1 password list", "http://h/ Cookie: a=b; try=always": "shop/next:80*1 password list",
			},
			[]string{"evil/canary Conflict spec.rules[0].http.paths[0]: host \"h\", path / belongs to Ingress shop/web of another namespace"},
		},
		{
			"a canary of weight 0 gets nothing",
			[]string{
				ingress("shop", "web", "", "", rule("h", "/", "Prefix", "web")),
				ingress("shop", "canary", "canary: 'true', canary-weight: '0'", "", rule("h", "/", "Prefix", "next")),
			},
			map[string]string{"http://h/": "shop/web:80*1"}, nil,
		},
		{
			"paths are in nginx' order: with one regular expression, all are, the longest first",
			[]string{
				ingress("shop", "all", "use-regex: 'true'", "", rule("h", "/(.*)", "ImplementationSpecific", "web")),
				ingress("shop", "api", "", "", rule("h", "/api/v1", "Prefix", "next")),
			},
			map[string]string{"http://h/api/v1": "shop/next:80*1", "http://h/API/v1x": "shop/next:80*1", "http://h/other": "shop/web:80*1"}, nil,
		},
		{
			"a regular expression of another namespace takes no path over by being long",
			[]string{
				ingress("shop", "web", "", "", rule("h", "/api", "Prefix", "web")),
				ingress("evil", "x", "use-regex: 'true'", "", rule("h", "/[a-z]+/?[a-z]*/?[a-z]*", "ImplementationSpecific", "next")),
			},
			map[string]string{"http://h/api/v1": "shop/web:80*1", "http://h/other": "evil/next:80*1"}, nil,
		},
		{
			"what the implementation decides is a beginning",
			[]string{ingress("shop", "web", "", "", rule("h", "/api", "ImplementationSpecific", "web"), rule("h", "/web", "Prefix", "next"))},
			map[string]string{"http://h/apiv2": "shop/web:80*1", "http://h/API": "404", "http://h/website": "404", "http://h/web": "shop/next:80*1"}, nil,
		},
		{
			"what a host has no path for is nobody else's",
			[]string{
				ingress("shop", "web", "", "", rule("a.example.com", "/api", "Prefix", "web")),
				ingress("evil", "wild", "", "", rule("*.example.com", "/", "Prefix", "web"), rule("", "/", "Prefix", "next")),
				"metadata: {namespace: shop, name: default}\nspec: {defaultBackend: {service: {name: next, port: {number: 80}}}, rules: [" + rule("d.example.com", "/api", "Prefix", "web") + "]}",
			},
			map[string]string{"http://a.example.com/secret": "404", "http://b.example.com/": "evil/web:80*1", "http://d.example.com/x": "shop/next:80*1", "http://elsewhere/": "evil/next:80*1"},
			[]string{"shop/default Conflict"},
		},
		{
			"other names of a host are the host",
			[]string{
				ingress("shop", "web", "from-to-www-redirect: 'true', server-alias: 'other.example.com, taken.example.com'", "{hosts: [h.example.com], secretName: pair}", rule("h.example.com", "/", "Prefix", "web")),
				ingress("evil", "x", "server-alias: more.example.com", "", rule("h.example.com", "/x", "Prefix", "web"), rule("taken.example.com", "/", "Prefix", "next")),
			},
			map[string]string{
				"https://other.example.com/": "shop/web:80*1", "http://other.example.com/": "308 to https://other.example.com/", "http://taken.example.com/": "evil/next:80*1",
				"https://www.h.example.com/a?b": "308 to https://h.example.com/a?b", "http://www.h.example.com/": "308 to http://h.example.com/", "http://www.h.example.com/ Scheme: https": "308 to https://h.example.com/",
			}, nil,
		},
		{
			"other names have the certificate that names them",
			[]string{ingress("shop", "web", "from-to-www-redirect: 'true', server-alias: other.example.com", "{hosts: [h.example.com, www.h.example.com, other.example.com], secretName: pair}", rule("h.example.com", "/", "Prefix", "web"))},
			map[string]string{
				"https://other.example.com/": "shop/web:80*1", "http://other.example.com/": "308 to https://other.example.com/",
				"https://www.h.example.com/a": "308 to https://h.example.com/a", "http://www.h.example.com/a": "308 to http://h.example.com/a",
			}, nil,
		},
		{
			"another name belongs to the oldest who gives it, and others are told",
			[]string{
				ingress("shop", "web", "server-alias: other.example.com", "", rule("h.example.com", "/", "Prefix", "web")),
				ingress("evil", "x", "server-alias: 'other.example.com, h.example.com'", "", rule("e.example.com", "/", "Prefix", "next")),
			},
			map[string]string{"http://other.example.com/": "shop/web:80*1", "http://h.example.com/": "shop/web:80*1"},
			[]string{`evil/x Conflict annotation nginx.ingress.kubernetes.io/server-alias: host "other.example.com" belongs to Ingress shop/web`, `host "h.example.com" belongs to Ingress shop/web`},
		},
		{
			"another name may stand for many",
			[]string{
				ingress("shop", "web", "server-alias: '*.w.example.com'", "", rule("h.example.com", "/", "Prefix", "web")),
				ingress("evil", "x", "", "", rule("a.w.example.com", "/", "Prefix", "next")),
			},
			map[string]string{"http://b.w.example.com/": "shop/web:80*1", "http://a.w.example.com/": "evil/next:80*1", "http://c.b.w.example.com/": "404"}, nil,
		},
		{
			"a path that is written otherwise is the same",
			[]string{
				ingress("shop", "web", "auth-type: basic, auth-secret: users", "", rule("h", "/admin", "Prefix", "web"), rule("h", "/shop/", "Exact", "web")),
				ingress("evil", "x", "", "", rule("h", "/%61dmin", "Prefix", "next"), rule("h", "/%73hop/", "Exact", "next")),
				ingress("evil", "y", "", "", rule("h", "////////admin", "ImplementationSpecific", "next")),
			},
			map[string]string{"http://h/admin": "shop/web:80*1 password", "http://h/admin/x": "shop/web:80*1 password", "http://h/shop/": "shop/web:80*1 password"},
			[]string{"evil/x Conflict spec.rules[0].http.paths[0]: host \"h\", path /%61dmin belongs to Ingress shop/web"},
		},
		{
			"where paths are regular expressions, another namespace's is one, and takes no path over by being long",
			[]string{
				ingress("shop", "web", "use-regex: 'true', auth-type: basic, auth-secret: users", "", rule("h", "/api/v[0-9]", "ImplementationSpecific", "web")),
				ingress("evil", "x", "", "", rule("h", "/[a]pi/[v-v][0-9]+.*.*.*", "Prefix", "next"), rule("h", "/[a]pi/[v-v][0-9]+.*.*.*", "ImplementationSpecific", "next")),
			},
			map[string]string{"http://h/api/v1": "shop/web:80*1 password"}, nil,
		},
		{
			"another namespace's expression counts for what all that it matches begins with",
			[]string{
				ingress("shop", "web", "auth-type: basic, auth-secret: users", "", rule("h", "/admin", "ImplementationSpecific", "web"), rule("r", "/", "Prefix", "next")),
				ingress("shop", "more", "use-regex: 'true'", "", rule("r", "/admin", "ImplementationSpecific", "web")),
				ingress("evil", "x", "use-regex: 'true'", "", rule("h", "/admin/aaaaaaaaaa|/admin", "Prefix", "next"), rule("r", "/adminx*", "Prefix", "next"), rule("h", "/admin/it", "Prefix", "next")),
			},
			map[string]string{"http://h/admin": "shop/web:80*1 password", "http://r/admin": "shop/web:80*1", "http://h/admin/it": "evil/next:80*1"}, nil,
		},
		{
			"who may come with a certificate is the host's, at all its paths",
			[]string{
				ingress("shop", "web", "auth-tls-secret: shop/ca, auth-tls-match-cn: CN=admin", "{hosts: [h.example.com], secretName: pair}", rule("h.example.com", "/", "Prefix", "web")),
				ingress("shop", "api", "", "", rule("h.example.com", "/api", "Prefix", "next")),
				ingress("shop", "own", "auth-tls-secret: shop/ca, auth-tls-match-cn: CN=.*", "", rule("h.example.com", "/own", "Prefix", "next")),
				ingress("evil", "x", "", "", rule("h.example.com", "/x", "Prefix", "next")),
			},
			map[string]string{
				"https://h.example.com/": "shop/web:80*1 clients CN=admin", "https://h.example.com/api": "shop/next:80*1 clients CN=admin", "https://h.example.com/x": "evil/next:80*1 clients CN=admin",
				"https://h.example.com/own": "500",
			},
			[]string{"shop/own Conflict host \"h.example.com\" belongs to Ingress shop/web, which decides the names of clients' certificates (auth-tls-match-cn)"},
		},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			out := Compile(tenants(t, strings.Join(test.ingresses, "\n---\n")), Options{Endpoints: endpointOf})
			for request, want := range test.want {
				if got := becomes(t, out.Table, request); got != want {
					t.Errorf("%s: %s, want %s", request, got, want)
				}
			}
			told := fmt.Sprint(out.Problems)
			for _, part := range test.problems {
				if !strings.Contains(told, part) {
					t.Errorf("not told %q, but %s", part, told)
				}
			}
			if t.Failed() {
				t.Log(out.Table.String())
			}
		})
	}
}

// TestCertificateOwner: certificates are obtained for hosts of the Ingress's namespace only,
// and say at which Gateway a host is shown to be its own.
func TestCertificateOwner(t *testing.T) {
	ingress := func(namespace, hosts, host string) string {
		return fmt.Sprintf("metadata: {namespace: %s, name: x, annotations: {fairway.dev/acme: 'true'}}\nspec: {tls: [{hosts: %s, secretName: tls}], rules: [{host: %s, http: {paths: [{path: /%s, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}", namespace, hosts, host, namespace)
	}
	out := Compile(tenants(t, strings.Join([]string{
		ingress("shop", "[shop.example.com]", "shop.example.com"), ingress("evil", "[Shop.Example.com, evil.example.com]", "evil.example.com"),
		strings.Replace(ingress("evil", "[shop.example.com]", "shop.example.com"), "name: x", "name: z", 1),
	}, "\n---\n")), Options{Endpoints: endpointOf})
	var got []string
	for _, w := range out.Wanted {
		got = append(got, fmt.Sprint(w.Secret, w.Hosts, w.At))
	}
	slices.Sort(got)
	if want := []string{"evil/tls [evil.example.com] map[evil.example.com:[kube-system/ingress]]", "shop/tls [shop.example.com] map[shop.example.com:[kube-system/ingress]]"}; !slices.Equal(got, want) {
		t.Errorf("certificates are obtained for %q, want %q", got, want)
	}
	told := fmt.Sprint(out.Problems)
	for _, name := range []string{"x", "z"} {
		if want := "evil/" + name + ` Conflict spec.tls[0]: no certificate is obtained for host "shop.example.com", which belongs to Ingress shop/x`; !strings.Contains(told, want) {
			t.Errorf("not told %q, but %s", want, told)
		}
	}
}

// TestCertificateOfAlias: another name of a host, and one that its wildcard covers, is the
// owner's, whoever names it in spec.tls; unless it has paths of it.
func TestCertificateOfAlias(t *testing.T) {
	const paths = "http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}"
	out := Compile(tenants(t, `metadata: {namespace: shop, name: x, annotations: {server-alias: other.example.com}}
spec: {rules: [{host: shop.example.com, `+paths+`}, {host: "*.w.example.com", `+paths+`}]}
---
metadata: {namespace: evil, name: x, annotations: {fairway.dev/acme: 'true'}}
spec: {tls: [{hosts: [other.example.com, a.w.example.com, b.w.example.com], secretName: tls}], rules: [{host: b.w.example.com, `+paths+`}]}`), Options{Endpoints: endpointOf})
	if len(out.Wanted) != 1 || !slices.Equal(out.Wanted[0].Hosts, []string{"b.w.example.com"}) {
		t.Errorf("certificates are obtained for %v", out.Wanted)
	}
	for _, name := range []string{"other.example.com", "a.w.example.com"} {
		if want := fmt.Sprintf("no certificate is obtained for host %q, which belongs to Ingress shop/x", name); !strings.Contains(fmt.Sprint(out.Problems), want) {
			t.Errorf("not told %q, but %v", want, out.Problems)
		}
	}
}

// TestSharedSecret: each host of a certificate is shown at the Gateways to which it leads,
// and not at those to which others of the certificate do.
func TestSharedSecret(t *testing.T) {
	o := tenants(t, `metadata: {namespace: shop, name: x, annotations: {fairway.dev/acme: 'true'}}
spec: {tls: [{hosts: [a.example.com, b.example.com], secretName: tls}], rules: [{host: a.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}`)
	o.Classes = []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: Controller}}}
	for name, host := range map[string]gatewayv1.Hostname{"one": "b.example.com", "two": "c.example.com"} {
		o.Gateways = append(o.Gateways, &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{AnnotationACME: "true"}},
			Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{
				Name: "l", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, Hostname: &host, TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "tls"}}},
			}}},
		})
	}
	out := Compile(o, Options{Endpoints: endpointOf})
	if len(out.Wanted) != 1 {
		t.Fatalf("certificates are obtained for %v", out.Wanted)
	}
	want := "map[a.example.com:[kube-system/ingress] b.example.com:[shop/one kube-system/ingress] c.example.com:[shop/two]]"
	if got := fmt.Sprint(out.Wanted[0].At); got != want {
		t.Errorf("hosts are shown at %s, want %s", got, want)
	}
}

// TestCertificateOfListenerSet: another tenant's listener of a shared Gateway gets no certificate
// for a host by naming it at another port.
func TestCertificateOfListenerSet(t *testing.T) {
	o, all, host, early := tenants(t, "metadata: {namespace: shop, name: x}"), gatewayv1.NamespacesFromAll, gatewayv1.Hostname("shop.example.com"), gatewayv1.Hostname("early.example.com")
	o.Classes = []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: Controller}}}
	o.Gateways = []*gatewayv1.Gateway{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "edge"},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "fairway", AllowedListeners: &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: &all}},
			Listeners: []gatewayv1.Listener{{Name: "all", Port: 80, Protocol: gatewayv1.HTTPProtocolType}, {Name: "early", Port: 81, Protocol: gatewayv1.HTTPProtocolType, Hostname: &early}},
		},
	}}
	infra := gatewayv1.Namespace("infra")
	for i, namespace := range []string{"shop", "evil"} {
		tls := &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "tls"}}}
		listeners := []gatewayv1.ListenerEntry{{Name: "own", Port: gatewayv1.PortNumber(443 + i), Protocol: gatewayv1.HTTPSProtocolType, Hostname: &host, TLS: tls}}
		if i == 0 {
			listeners = append(listeners, gatewayv1.ListenerEntry{Name: "early", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, Hostname: &early, TLS: tls})
		}
		o.ListenerSets = append(o.ListenerSets, &gatewayv1.ListenerSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "set", CreationTimestamp: metav1.Unix(int64(i), 0), Annotations: map[string]string{AnnotationACME: "true"}},
			Spec:       gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Name: "edge", Namespace: &infra}, Listeners: listeners},
		})
	}
	out := Compile(o, Options{Endpoints: endpointOf})
	if len(out.Wanted) != 1 || fmt.Sprint(out.Wanted[0].Secret, out.Wanted[0].Hosts) != "shop/tls [early.example.com shop.example.com]" {
		t.Errorf("certificates are obtained for %v", out.Wanted)
	}
	if want := `spec.listeners[own]: no certificate is obtained for host "shop.example.com", which belongs to listener shop/set/own`; !strings.Contains(fmt.Sprint(out.Problems), want) {
		t.Errorf("not told %q, but %v", want, out.Problems)
	}
}

// TestMirrorGranted: copies go to another namespace only if that lets them.
func TestMirrorGranted(t *testing.T) {
	o := tenants(t, `metadata: {namespace: evil, name: x, annotations: {mirror-target: 'http://web.shop.svc.cluster.local$request_uri'}}
spec: {rules: [{host: h, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}`)
	mirrors := func() []model.Mirror {
		s := Compile(o, Options{Endpoints: endpointOf}).Table.Sockets[0]
		return s.Decide(&model.Request{Method: http.MethodGet, Host: "h", Path: "/"}).Rule.Action.Mirrors
	}
	if got := mirrors(); got != nil {
		t.Errorf("copies go to %v", got)
	}
	o.Grants = []*gatewayv1.ReferenceGrant{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "g"}, Spec: gatewayv1.ReferenceGrantSpec{
		From: []gatewayv1.ReferenceGrantFrom{{Group: networkingv1.GroupName, Kind: "Ingress", Namespace: "evil"}}, To: []gatewayv1.ReferenceGrantTo{{Kind: "Service"}},
	}}}
	if got := mirrors(); len(got) != 1 || got[0].Pool != "shop/web:80" {
		t.Errorf("copies go to %v", got)
	}
}
