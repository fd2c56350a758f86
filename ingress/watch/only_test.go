package watch

import (
	"context"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"
)

// TestOnly: of what leads to other Gateways, a watch keeps the name, and nobody is
// woken by it.
func TestOnly(t *testing.T) {
	w := NewFor(fake.NewClientset(), nil, slog.New(slog.DiscardHandler))
	w.LeaveStatuses()
	w.Only(types.NamespacedName{Namespace: "shop", Name: "gw"})
	route := func(namespace string, parent gatewayv1.ParentReference) *gatewayv1.HTTPRoute {
		return &gatewayv1.HTTPRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "r", Generation: 1},
			Spec:       gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{"a"}, CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{parent}}},
		}
	}
	shop, set, service := gatewayv1.Namespace("shop"), gatewayv1.Kind("ListenerSet"), gatewayv1.Kind("Service")
	for name, test := range map[string]struct {
		object any
		kept   bool
	}{
		"ours":                    {route("shop", gatewayv1.ParentReference{Name: "gw"}), true},
		"from elsewhere":          {route("other", gatewayv1.ParentReference{Namespace: &shop, Name: "gw"}), true},
		"perhaps by ListenerSet":  {route("other", gatewayv1.ParentReference{Kind: &set, Name: "set"}), true},
		"another of the name":     {route("other", gatewayv1.ParentReference{Name: "gw"}), false},
		"another":                 {route("shop", gatewayv1.ParentReference{Name: "other"}), false},
		"of a Service":            {route("shop", gatewayv1.ParentReference{Kind: &service, Name: "gw"}), false},
		"an Ingress":              {&networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a"}}}}, false},
		"something else entirely": {&gatewayv1.Gateway{}, true},
	} {
		got, err := w.trim(test.object)
		if err != nil {
			t.Fatal(err)
		}
		hosts := 1
		switch o := got.(type) {
		case *gatewayv1.HTTPRoute:
			hosts = len(o.Spec.Hostnames)
		case *networkingv1.Ingress:
			hosts = len(o.Spec.Rules)
		}
		if (hosts == 1) != test.kept {
			t.Errorf("%s: kept is %t", name, hosts == 1)
		}
		w.Take()
		w.happened(nil, got)
		if changes := w.Take(); changes.None() == test.kept {
			t.Errorf("%s: changes %+v", name, changes)
		}
	}
}

// TestFollowGateways: there is a process for each Gateway whose Service has ports of
// an engine.
func TestFollowGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := fake.NewClientset()
		create := func(name, gateway string, port, target int32) {
			s := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{gatewayv1.GatewayNameLabelKey: gateway}},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(target)}}},
			}
			if _, err := core.CoreV1().Services("shop").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		api := gatewayfake.NewSimpleClientset()
		for _, name := range []string{"gw", "streams", "gw2", "late"} {
			g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
			if _, err := api.GatewayV1().Gateways("shop").Create(t.Context(), g, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		create("gw-fairway", "gw", 80, 20000)
		create("forged-fairway", "forged", 80, 20003)
		create("streams-fairway", "streams", 5432, 5432)
		create("not-ours", "gw2", 80, 20001)
		var told map[types.NamespacedName]bool
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			FollowGateways(ctx, core, api, func(all map[types.NamespacedName]bool) { told = maps.Clone(all) })
		}()
		expect := func(names ...string) {
			t.Helper()
			synctest.Wait()
			want := map[types.NamespacedName]bool{}
			for _, n := range names {
				want[types.NamespacedName{Namespace: "shop", Name: n}] = true
			}
			if !maps.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
		}
		expect("gw")
		create("late-fairway", "late", 443, 20002)
		expect("gw", "late")
		if err := core.CoreV1().Services("shop").Delete(t.Context(), "gw-fairway", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("late")
		stop()
		<-ended
	})
}
