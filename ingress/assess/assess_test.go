package assess

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

func objects(t *testing.T, text string) *ingress.Objects {
	t.Helper()
	o := &ingress.Objects{Services: map[types.NamespacedName]*corev1.Service{}, Secrets: map[types.NamespacedName]*corev1.Secret{}, ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{}}
	for part := range strings.SplitSeq(text, "---\n") {
		i := &networkingv1.Ingress{}
		if err := yaml.UnmarshalStrict([]byte(part), i); err != nil {
			t.Fatal(err)
		}
		o.Ingresses = append(o.Ingresses, i)
	}
	return o
}

// TestAssess: each Ingress is told what works, what is otherwise and what isn't done.
func TestAssess(t *testing.T) {
	const spec = "spec: {ingressClassName: nginx, tls: [{hosts: [%[1]s], secretName: s}], rules: [{host: %[1]s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}}]}\n"
	o := objects(t, fmt.Sprintf("metadata: {namespace: a, name: all, annotations: {nginx.ingress.kubernetes.io/ssl-redirect: 'true', nginx.ingress.kubernetes.io/proxy-body-size: 8m, nginx.ingress.kubernetes.io/auth-type: basic, nginx.ingress.kubernetes.io/auth-secret: users}}\n"+spec, "a.example")+"---\n"+
		fmt.Sprintf("metadata: {namespace: a, name: some, annotations: {nginx.ingress.kubernetes.io/upstream-hash-by-subset: 'true', nginx.ingress.kubernetes.io/fastcgi-index: index.php}}\n"+spec, "b.example")+"---\n"+
		fmt.Sprintf("metadata: {namespace: a, name: none, annotations: {nginx.ingress.kubernetes.io/enable-modsecurity: 'true'}}\n"+spec, "c.example"))
	added, err := Complete(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(added, ", "); got != "IngressClass nginx, Secret a/s, Secret a/users, Service a/web" {
		t.Errorf("added %s", got)
	}
	var lines []string
	for _, r := range Assess(o) {
		lines = append(lines, fmt.Sprintf("%s %d works %v otherwise %d not %d closed %t", r.Ingress, r.Score, r.Works, len(r.Otherwise), len(r.Not), r.Closed))
	}
	want := "a/all 100 works [auth-secret auth-type proxy-body-size ssl-redirect] otherwise 0 not 0 closed false\n" +
		"a/none 0 works [] otherwise 0 not 1 closed true\n" +
		"a/some 50 works [] otherwise 1 not 1 closed false"
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("reports\n%s\nwant\n%s", got, want)
	}
}
