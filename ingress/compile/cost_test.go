package compile

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// many is a Gateway with routes, each with a hostname and a Service of its own.
func many(n int) *Objects {
	o := &Objects{
		Classes: []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: Controller}}},
		Gateways: []*gatewayv1.Gateway{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gw"},
			Spec:       gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}},
		}},
		Services: map[types.NamespacedName]*corev1.Service{},
	}
	for i := range n {
		o.add(i)
	}
	return o
}

func (o *Objects) add(i int) {
	name := fmt.Sprintf("web-%d", i)
	o.Services[types.NamespacedName{Namespace: "shop", Name: name}] = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	o.HTTPRoutes = append(o.HTTPRoutes, manyRoute(i, "/"))
}

func manyRoute(i int, path string) *gatewayv1.HTTPRoute {
	name := fmt.Sprintf("web-%d", i)
	ref := gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
		Name: gatewayv1.ObjectName(name), Port: ptr.To(gatewayv1.PortNumber(80)),
	}}}
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9+i), 0))},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gw"}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(name + ".example.com")},
			Rules: []gatewayv1.HTTPRouteRule{{
				Matches:     []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: ptr.To(path)}}},
				BackendRefs: []gatewayv1.HTTPBackendRef{ref},
			}},
		},
	}
}

func BenchmarkCompile(b *testing.B) {
	o := many(5000)
	for b.Loop() {
		Compile(o, Options{Endpoints: endpointOf})
	}
}
