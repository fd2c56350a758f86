package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// TestGateway follows a Gateway from nothing to its address.
func TestGateway(t *testing.T) {
	r := newRig(t, Options{})
	r.makeGateway(gatewayOf80)
	r.until("a Service", func() bool { return r.theService("web") != nil })
	s := r.theService("web")
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || len(s.Spec.Ports) != 1 {
		t.Errorf("the Service is %+v", s.Spec)
	}
	if p := s.Spec.Ports[0]; p.Port != 80 || p.TargetPort.IntValue() < firstPort || p.TargetPort.IntValue() > lastPort {
		t.Errorf("port %+v: the engine's must be between %d and %d", p, firstPort, lastPort)
	}
	if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != "uid-of-web" || s.Labels[gatewayv1.GatewayNameLabelKey] != "web" {
		t.Errorf("labels %v, owners %v", s.Labels, s.OwnerReferences)
	}
	programmed := func(want string) func() bool {
		return func() bool { return reason(r.theGateway("web").Status.Conditions, "Programmed") == want }
	}
	r.until("nobody serves it", programmed("False(NoResources)"))
	r.engineOn("a", time.Now(), "192.0.2.1", "2001:db8::1")
	r.until("it has no address", programmed("False(AddressNotAssigned)"))
	r.giveAddress("web", "198.51.100.7", "2001:db8:1::7")
	r.until("it is programmed", programmed("True(Programmed)"))
	var addresses []string
	for _, a := range r.theGateway("web").Status.Addresses {
		addresses = append(addresses, a.Value)
	}
	if !slices.Equal(addresses, []string{"198.51.100.7", "2001:db8:1::7"}) {
		t.Errorf("addresses %v", addresses)
	}
	var endpoints []string
	for _, slice := range r.theSlices("web") {
		endpoints = append(endpoints, slice.Endpoints[0].Addresses[0]+" on "+*slice.Endpoints[0].NodeName)
		if int(*slice.Ports[0].Port) != s.Spec.Ports[0].TargetPort.IntValue() {
			t.Errorf("slice %s leads to port %d", slice.Name, *slice.Ports[0].Port)
		}
	}
	slices.Sort(endpoints)
	if want := []string{"192.0.2.1 on a", "2001:db8::1 on a"}; !slices.Equal(endpoints, want) {
		t.Errorf("endpoints %v, want %v", endpoints, want)
	}
}

// TestNothingToWrite: what is right already is not written again.
func TestNothingToWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.engineOn("a", time.Now(), "192.0.2.1")
	r.makeGateway(gatewayOf80)
	r.until("a Service", func() bool { return r.theService("web") != nil })
	r.giveAddress("web", "198.51.100.7")
	writes := func() int {
		n := 0
		for _, a := range slices.Concat(r.core.Actions(), r.gateway.Actions()) {
			if a.GetVerb() == "create" || a.GetVerb() == "update" || a.GetVerb() == "delete" || a.GetVerb() == "patch" {
				n++
			}
		}
		return n
	}
	r.until("nothing is left to write", func() bool {
		before := writes()
		r.must(r.sync(t.Context()))
		return writes() == before && reason(r.theGateway("web").Status.Conditions, "Programmed") == "True(Programmed)"
	})
	before := writes()
	for range 5 {
		r.must(r.sync(t.Context()))
	}
	if n := writes() - before; n != 0 {
		t.Errorf("%d writes though nothing has changed", n)
	}
}

// TestForeignService: a Service that has the name already is left alone.
func TestForeignService(t *testing.T) {
	r := newRig(t, Options{})
	r.makeService("metadata: {name: web-fairway, namespace: shop}\nspec: {ports: [{port: 1}]}")
	r.makeGateway(gatewayOf80)
	for late := range wait.Tries(waitTimeout) {
		if err := r.sync(t.Context()); err != nil && strings.Contains(err.Error(), "somebody else's") {
			break
		}
		if late {
			t.Fatal("nobody says that the Service is somebody else's")
		}
	}
	if s := r.theService("web"); s.Spec.Ports[0].Port != 1 || len(s.Labels) != 0 {
		t.Errorf("the Service was changed: %+v", s)
	}
}

// TestNodeAddresses: without a load balancer, the nodes' addresses are the
// Gateway's, unless it asks for some.
func TestNodeAddresses(t *testing.T) {
	r := newRig(t, Options{NodeAddresses: true})
	r.makeGateway(gatewayOf80)
	r.until("a Service that nobody outside reaches, since the API refuses a policy for it", func() bool {
		s := r.theService("web")
		return s != nil && s.Spec.ExternalTrafficPolicy == ""
	})
	r.engineOn("a", time.Now(), "192.0.2.1", "2001:db8::1")
	r.until("the client's address stays what it is", func() bool {
		return r.theService("web").Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	})
	r.until("the node's addresses", func() bool {
		s := r.theService("web")
		return s != nil && s.Spec.Type == corev1.ServiceTypeClusterIP && slices.Equal(s.Spec.ExternalIPs, []string{"192.0.2.1", "2001:db8::1"})
	})
	r.until("it is programmed", func() bool {
		g := r.theGateway("web")
		return reason(g.Status.Conditions, "Programmed") == "True(Programmed)" && len(g.Status.Addresses) == 2
	})
	r.makeGateway(`
metadata: {name: own, namespace: shop}
spec:
  gatewayClassName: fairway
  addresses: [{value: 203.0.113.9}]
  listeners: [{name: http, port: 80, protocol: HTTP}]
`)
	r.until("an address of its own", func() bool {
		s := r.theService("own")
		return s != nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Spec.ExternalIPs) == 0
	})
	r.until("it can't be had", func() bool {
		return reason(r.theGateway("own").Status.Conditions, "Programmed") == "False(AddressNotUsable)"
	})
}

// TestClasses: the classes are there, and say what is supported.
func TestClasses(t *testing.T) {
	r := newRig(t, Options{})
	r.until("the GatewayClass is accepted", func() bool {
		c, err := r.gateway.GatewayV1().GatewayClasses().Get(t.Context(), className, metav1.GetOptions{})
		r.must(err)
		return reason(c.Status.Conditions, "Accepted") == "True(Accepted)" && len(c.Status.SupportedFeatures) == len(ingress.Features(nil))
	})
	r.must(r.makeClasses(t.Context())) // again is no error
}

// TestEvents: a problem is told once, and again after it was gone.
func TestEvents(t *testing.T) {
	r := newRig(t, Options{})
	p := ingress.Problem{Kind: "Ingress", Reason: ingress.ReasonRefused, Message: "a snippet"}
	r.must(r.sync(t.Context()))
	for _, list := range [][]ingress.Problem{{p}, {p}, nil, {p}} {
		r.reportProblems(list)
	}
	if n := len(r.events.Events); n != 2 {
		t.Errorf("%d Events, want 2", n)
	}
}

// TestCost: what leads to no status has nothing compiled: endpoints that move,
// Services to which no route leads, and what the controller writes itself.
func TestCost(t *testing.T) {
	r := newRig(t, Options{})
	r.engineOn("a", time.Now(), "192.0.2.1")
	r.makeGateway(strings.Replace(gatewayOf80, "uid-of-web", "uid-of-web, generation: 1", 1))
	_, err := r.gateway.GatewayV1().HTTPRoutes("shop").Create(t.Context(), from[gatewayv1.HTTPRoute](r, `
metadata: {name: web, namespace: shop, generation: 1}
spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: shop, port: 80}]}]}
`), metav1.CreateOptions{})
	r.must(err)
	resolved := func() string {
		route, err := r.gateway.GatewayV1().HTTPRoutes("shop").Get(t.Context(), "web", metav1.GetOptions{})
		r.must(err)
		if len(route.Status.Parents) == 0 {
			return ""
		}
		return reason(route.Status.Parents[0].Conditions, "ResolvedRefs")
	}
	r.until("a route to nothing", func() bool { return resolved() == "False(BackendNotFound)" })
	r.until("a Service", func() bool { return r.theService("web") != nil })
	r.giveAddress("web", "198.51.100.7")
	r.until("it is programmed", func() bool { return reason(r.theGateway("web").Status.Conditions, "Programmed") == "True(Programmed)" })
	quiet := 0
	r.until("nothing more happens", func() bool {
		before := r.compiles
		r.must(r.sync(t.Context()))
		if quiet++; r.compiles != before {
			quiet = 0
		}
		return quiet > 20
	})

	before := r.compiles
	seen := func(what string, done func() bool) {
		t.Helper()
		r.until(what, done)
		if r.compiles != before {
			t.Errorf("%s: %d compilations", what, r.compiles-before)
			before = r.compiles
		}
	}
	r.makeService("metadata: {name: unrelated, namespace: shop}\nspec: {ports: [{port: 80}]}")
	r.makeSlice("shop", "shop-1", 8080, "10.0.0.1")
	seen("what leads nowhere", func() bool { return r.watch.Service(types.NamespacedName{Namespace: "shop", Name: "unrelated"}) != nil })
	gateway := r.theGateway("web")
	gateway.Status.Conditions = nil
	_, err = r.gateway.GatewayV1().Gateways("shop").UpdateStatus(t.Context(), gateway, metav1.UpdateOptions{})
	r.must(err)
	seen("a status that somebody has overwritten", func() bool { return reason(r.theGateway("web").Status.Conditions, "Programmed") == "True(Programmed)" })

	r.makeService("metadata: {name: shop, namespace: shop}\nspec: {ports: [{port: 80}]}")
	r.until("the route's Service", func() bool { return resolved() == "True(ResolvedRefs)" })
	if r.compiles == before {
		t.Error("a Service to which a route leads has nothing compiled")
	}
}

// TestPause: a change after a calm time is looked at soon; while changes go on, compiling
// has a fifth of a processor, and nobody waits longer than longestCalm.
func TestPause(t *testing.T) {
	for _, test := range []struct{ took, since, want time.Duration }{
		{0, 0, merge},
		{time.Millisecond, 0, merge},
		{100 * time.Millisecond, 0, 400 * time.Millisecond},
		{100 * time.Millisecond, 300 * time.Millisecond, 100 * time.Millisecond},
		{100 * time.Millisecond, time.Minute, merge},
		{time.Minute, 0, longestCalm},
		{time.Minute, time.Second, merge},
	} {
		now := time.Now()
		c := Controller{took: test.took, ended: now.Add(-test.since)}
		if got := c.pause(now); got != test.want {
			t.Errorf("compiling took %s, %s ago: %s, want %s", test.took, test.since, got, test.want)
		}
	}
}

// TestClassInUse: a class stays as long as there are Gateways of it.
func TestClassInUse(t *testing.T) {
	r := newRig(t, Options{})
	held := func() bool {
		c, err := r.gateway.GatewayV1().GatewayClasses().Get(t.Context(), className, metav1.GetOptions{})
		r.must(err)
		return slices.Contains(c.Finalizers, gatewayv1.GatewayClassFinalizerGatewaysExist)
	}
	r.until("a class that nobody uses", func() bool { return !held() })
	r.makeGateway(gatewayOf80)
	r.until("a class in use", held)
	r.must(r.gateway.GatewayV1().Gateways("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	r.until("a class that nobody uses any more", func() bool { return !held() })
}

// TestForeignConditions: what others say of a Gateway and its listeners stays, and what is
// no longer so of our own goes.
func TestForeignConditions(t *testing.T) {
	r := newRig(t, Options{})
	r.makeGateway(gatewayOf80)
	said := func(want string) func() bool {
		return func() bool { return reason(r.theGateway("web").Status.Conditions, "Programmed") == want }
	}
	r.until("a status", said("False(NoResources)"))
	g := r.theGateway("web").DeepCopy()
	for _, list := range []*[]metav1.Condition{&g.Status.Conditions, &g.Status.Listeners[0].Conditions} {
		for _, kind := range []string{"example.com/Seen", string(gatewayv1.GatewayConditionInsecureFrontendValidationMode)} {
			*list = append(*list, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Seeded"})
		}
	}
	if _, err := r.gateway.GatewayV1().Gateways(g.Namespace).UpdateStatus(t.Context(), g, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.engineOn("a", time.Now(), "192.0.2.1")
	r.until("another status", said("False(AddressNotAssigned)"))
	status := r.theGateway("web").Status
	for _, list := range [][]metav1.Condition{status.Conditions, status.Listeners[0].Conditions} {
		if reason(list, "example.com/Seen") != "True(Seeded)" || reason(list, string(gatewayv1.GatewayConditionInsecureFrontendValidationMode)) == "True(Seeded)" {
			t.Errorf("conditions %+v", list)
		}
	}
}
