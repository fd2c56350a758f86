package nginx

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/convert"
	"github.com/fairway-net/fairway/ingress/engines"
)

// TestConverted plays the same cases with what `fairway ingress convert` makes of the
// Ingresses: where it says of nothing that it is left out, the answers are those that
// the Ingresses give.
func TestConverted(t *testing.T) {
	s, e := newServices(t), startEngine(t, engines.Native)
	whole, all := 0, 0
	for _, c := range append(readSuite(t, "testdata/suite.txt"), readSuite(t, "testdata/traefik.txt")...) {
		if c.unplayed != "" || len(c.requests) == 0 {
			continue
		}
		all++
		t.Run(c.file+"/"+c.name, func(t *testing.T) {
			o := s.objects(t, c)
			made := convert.Convert(o.Ingresses, convert.Options{GatewayClass: "fairway", Gateway: "gw", Services: o.Services})
			if len(made.Left) > 0 {
				return
			}
			whole++
			o.Ingresses, o.Gateways, o.HTTPRoutes = nil, made.Gateways, made.Routes
			o.Classes = []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: compile.Controller}}}
			o.Namespaces = map[string]*corev1.Namespace{"a": {ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
			said := s.serve(t, o, e)
			for _, request := range c.requests {
				a := asking{services: s, table: said.table, engine: engines.Native, sockets: e.Sockets(), gateway: types.NamespacedName{Namespace: "a", Name: "gw"}, want: map[string]string{}}
				a.read(t, request)
				a.ask(t, request)
			}
			if t.Failed() {
				t.Logf("of %s\ncame\n%s", strings.Join(c.ingresses, "\n"), said.table)
			}
		})
	}
	t.Logf("of %d cases, %d are converted as a whole", all, whole)
}
