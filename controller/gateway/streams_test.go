package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestStreams: a TCPRoute's backends become endpoints of the Gateway's Service,
// in proportion to their weights, and go with the route.
func TestStreams(t *testing.T) {
	r := newRig(t, Options{})
	r.engineOn("a", time.Now(), "192.0.2.1")
	r.makeService("metadata: {name: one, namespace: shop}\nspec: {ports: [{port: 5432, protocol: TCP}]}")
	r.makeService("metadata: {name: two, namespace: shop}\nspec: {ports: [{port: 5432, protocol: TCP}]}")
	r.makeSlice("one", "one-x", 15432, "10.0.0.1")
	r.makeSlice("two", "two-x", 25432, "10.0.0.2", "10.0.0.3")
	r.makeGateway(`
metadata: {name: db, namespace: shop}
spec:
  gatewayClassName: fairway
  listeners: [{name: tcp, port: 6000, protocol: TCP}, {name: http, port: 80, protocol: HTTP}]
`)
	route := from[gatewayv1.TCPRoute](r, `
metadata: {name: db, namespace: shop}
spec:
  parentRefs: [{name: db}]
  rules: [{backendRefs: [{name: one, port: 5432, weight: 3}, {name: two, port: 5432, weight: 1}]}]
`)
	_, err := r.gateway.GatewayV1().TCPRoutes("shop").Create(t.Context(), route, metav1.CreateOptions{})
	r.must(err)
	copies := func() string {
		var lines []string
		for name, s := range r.theSlices("db") {
			if strings.Contains(name, "engines") {
				continue
			}
			for _, e := range s.Endpoints {
				lines = append(lines, fmt.Sprintf("%s %s:%d weight %s", *s.Ports[0].Name, e.Addresses[0], *s.Ports[0].Port, s.Annotations[annotationWeight]))
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	// 3 of 4 connections to one, and half of the rest to each of the others.
	want := "tcp-6000 10.0.0.1:15432 weight 60\ntcp-6000 10.0.0.2:25432 weight 10\ntcp-6000 10.0.0.3:25432 weight 10"
	r.until("the endpoints of both", func() bool { return copies() == want })
	s := r.theService("db")
	if s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyCluster {
		t.Errorf("policy %s: the endpoints may be on any node", s.Spec.ExternalTrafficPolicy)
	}
	r.until("the route is accepted", func() bool {
		route, err := r.gateway.GatewayV1().TCPRoutes("shop").Get(t.Context(), "db", metav1.GetOptions{})
		r.must(err)
		return len(route.Status.Parents) == 1 && reason(route.Status.Parents[0].Conditions, "Accepted") == "True(Accepted)"
	})
	r.must(r.gateway.GatewayV1().TCPRoutes("shop").Delete(t.Context(), "db", metav1.DeleteOptions{}))
	r.until("no endpoint without the route", func() bool { return copies() == "" })
	if len(r.theSlices("db")) == 0 {
		t.Error("the engines' slice has gone too")
	}
}

// TestPortOfItsOwnNumber: an engine's port is never the one that clients connect
// to, which is how streams are told from it.
func TestPortOfItsOwnNumber(t *testing.T) {
	r := newRig(t, Options{})
	r.engineOn("a", time.Now(), "192.0.2.1")
	r.makeGateway(fmt.Sprintf(`
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: fairway
  listeners: [{name: http, port: %d, protocol: HTTP}, {name: other, port: %d, protocol: HTTP}]
`, firstPort, firstPort+1))
	r.until("both ports lead to the engine", func() bool {
		for _, s := range r.theSlices("web") {
			if len(s.Ports) == 2 {
				return true
			}
		}
		return false
	})
	seen := map[int]bool{}
	for _, p := range r.theService("web").Spec.Ports {
		if target := p.TargetPort.IntValue(); target == int(p.Port) || seen[target] {
			t.Errorf("port %d leads to %d", p.Port, target)
		} else {
			seen[target] = true
		}
	}
}

// TestPorts: numbers run out with an error that says so.
func TestPorts(t *testing.T) {
	p := &ports{holders: map[int32]string{}, next: firstPort}
	for range lastPort - firstPort + 1 {
		if _, err := p.take("a", 80); err != nil {
			t.Fatal(err)
		}
	}
	if port, err := p.take("b", 80); err == nil {
		t.Errorf("port %d was given out twice", port)
	}
}

// TestLongSliceName: a copy's name is never longer than the API lets.
func TestLongSliceName(t *testing.T) {
	long := strings.Repeat("x", 253)
	one, other := sliceName("gw-fairway-tcp-80-0-", long), sliceName("gw-fairway-tcp-80-0-", long[1:]+"y")
	if len(one) > 253 || one == other {
		t.Errorf("%s and %s", one, other)
	}
}

// TestOthersStatus: what other controllers say of a route stays; what we said of
// a parent that it no longer has goes.
func TestOthersStatus(t *testing.T) {
	r := newRig(t, Options{})
	r.makeGateway(gatewayOf80)
	foreign := gatewayv1.RouteParentStatus{
		ParentRef: gatewayv1.ParentReference{Name: "theirs"}, ControllerName: "example.com/other",
		Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: metav1.Now()}},
	}
	routes := r.gateway.GatewayV1().HTTPRoutes("shop")
	route := from[gatewayv1.HTTPRoute](r, "metadata: {name: r, namespace: shop}\nspec: {parentRefs: [{name: web}, {name: theirs}]}")
	route.Status.Parents = []gatewayv1.RouteParentStatus{foreign}
	_, err := routes.Create(t.Context(), route, metav1.CreateOptions{})
	r.must(err)
	parents := func() string {
		route, err := routes.Get(t.Context(), "r", metav1.GetOptions{})
		r.must(err)
		var out []string
		for _, p := range route.Status.Parents {
			out = append(out, string(p.ParentRef.Name)+" by "+string(p.ControllerName))
		}
		return strings.Join(out, ", ")
	}
	r.until("both parents", func() bool { return parents() == "theirs by example.com/other, web by fairway.dev/gateway" })
	// The fake API has no conflicts: a status written to an old version would undo
	// what follows.
	r.until("the controller has seen what it wrote", func() bool {
		return len(r.watch.Objects().HTTPRoutes[0].Status.Parents) == 2
	})
	route, err = routes.Get(t.Context(), "r", metav1.GetOptions{})
	r.must(err)
	route.Spec.ParentRefs = route.Spec.ParentRefs[1:]
	_, err = routes.Update(t.Context(), route, metav1.UpdateOptions{})
	r.must(err)
	r.until("theirs only", func() bool { return parents() == "theirs by example.com/other" })
}
