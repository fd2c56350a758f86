package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	k8stesting "k8s.io/client-go/testing"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/engines"
)

// TestEngines: an engine is gone once its Lease was seen not to change for as long as it
// holds, whatever the clocks say; never because the API was away.
func TestEngines(t *testing.T) {
	r := newRig(t, Options{})
	var failing error // of the API, for Leases and Nodes
	for _, kind := range []string{"leases", "nodes"} {
		r.core.PrependReactor("*", kind, func(a k8stesting.Action) (bool, runtime.Object, error) {
			reads := a.GetVerb() == "get" || a.GetVerb() == "list"
			return reads && failing != nil, nil, failing
		})
	}
	now := time.Now()
	r.engineOn("late", now.Add(-time.Hour), "192.0.2.1") // its clock is an hour behind
	r.engineOn("live", now, "192.0.2.2")
	renew := func(node string, at time.Time) {
		leases := r.core.CoordinationV1().Leases(metav1.NamespaceSystem)
		l, err := leases.Get(t.Context(), "fairway-gateway-"+node, metav1.GetOptions{})
		r.must(err)
		renewed := metav1.NewMicroTime(at)
		l.Spec.RenewTime = &renewed
		_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
		r.must(err)
	}
	check := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, e := range r.liveEngines() {
			got = append(got, e.node)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: engines %v, want %v", what, got, want)
		}
	}
	pass := func(d time.Duration) { // time goes on, in which the controller looks
		for end := now.Add(d); now.Before(end); {
			now = now.Add(time.Second)
			r.lookAtEngines(t.Context(), now)
		}
	}
	pass(time.Second)
	check("the clock of one is an hour behind", "late", "live")
	for range 5 {
		pass(10 * time.Second)
		renew("late", now.Add(-time.Hour))
	}
	check("one was not renewed", "late")
	renew("live", now)
	pass(time.Second)
	failing = errors.New("too many requests")
	pass(10 * time.Minute)
	check("the API is away", "late", "live")
	failing = nil
	pass(30 * time.Second)
	check("the API is back", "late", "live")
	renew("live", now)
	pass(20 * time.Second)
	check("one wasn't renewed since", "live")
	r.core.PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("timeout")
	})
	pass(time.Second)
	check("a Node can't be read", "live")
	r.must(r.core.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(context.Background(), "fairway-gateway-live", metav1.DeleteOptions{}))
	pass(time.Second)
	check("the engine says that it is gone")
}

// TestUnserved: a port that no engine can open is not programmed, and a node that can't
// open it gets no traffic while another one can.
func TestUnserved(t *testing.T) {
	r := newRig(t, Options{})
	r.engineOn("a", time.Now(), "192.0.2.1")
	r.makeGateway(gatewayOf80)
	r.until("a Service", func() bool { return r.theService("web") != nil })
	r.giveAddress("web", "198.51.100.7")
	programmed := func(want string) func() bool {
		return func() bool {
			g := r.theGateway("web")
			return reason(g.Status.Conditions, "Programmed") == want && len(g.Status.Listeners) == 1 && reason(g.Status.Listeners[0].Conditions, "Programmed") == want
		}
	}
	r.until("it is programmed", programmed("True(Programmed)"))
	say := func(node, text string) {
		leases := r.core.CoordinationV1().Leases(metav1.NamespaceSystem)
		l, err := leases.Get(t.Context(), "fairway-gateway-"+node, metav1.GetOptions{})
		r.must(err)
		l.Annotations = map[string]string{engines.AnnotationUnserved: text}
		_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
		r.must(err)
		r.lookAtEngines(t.Context(), time.Now())
	}
	say("a", `{"shop/web:80":"address already in use"}`)
	r.until("it isn't programmed", programmed("False(Pending)"))
	if p := meta.FindStatusCondition(r.theGateway("web").Status.Conditions, "Programmed"); !strings.Contains(p.Message, "port 80 can't be opened on node a") {
		t.Errorf("the message is %q", p.Message)
	}
	r.engineOn("b", time.Now(), "192.0.2.2")
	r.until("another node serves it", programmed("True(Programmed)"))
	r.until("the first one gets no traffic", func() bool {
		slice := r.theSlices("web")["web-fairway-engines-ipv4"]
		return len(slice.Endpoints) == 1 && *slice.Endpoints[0].NodeName == "b"
	})
	say("a", "")
	r.until("both get traffic", func() bool { return len(r.theSlices("web")["web-fairway-engines-ipv4"].Endpoints) == 2 })
}

// TestPutBack: who may write to a Gateway's Service gets nobody else's port, and what the
// controller has made is put back.
func TestPutBack(t *testing.T) {
	r := newRig(t, Options{})
	r.engineOn("a", time.Now(), "192.0.2.1")
	r.makeGateway(gatewayOf80)
	r.makeGateway(strings.ReplaceAll(gatewayOf80, "web", "evil"))
	target := func(gateway string) int { return r.theService(gateway).Spec.Ports[0].TargetPort.IntValue() }
	r.until("two Services", func() bool { return r.theService("web") != nil && r.theService("evil") != nil })
	victim := target("web")
	for _, port := range []int{victim, 22, 80, lastPort + 1} {
		s := r.theService("evil")
		s.Spec.Ports[0].TargetPort = intstr.FromInt(port)
		s.Spec.Selector = map[string]string{"app": "mine"}
		s.CreationTimestamp = metav1.Unix(1, 0) // older than the other
		_, err := r.core.CoreV1().Services("shop").Update(t.Context(), s, metav1.UpdateOptions{})
		r.must(err)
		r.until("the port is its own again", func() bool {
			got := target("evil")
			return got != victim && got >= firstPort && got <= lastPort && r.theService("evil").Spec.Selector == nil
		})
		if got := target("web"); got != victim {
			t.Fatalf("the other Gateway lost its port %d for %d", victim, got)
		}
	}
	slice := r.theSlices("web")["web-fairway-engines-ipv4"]
	slice.Labels = nil
	_, err := r.core.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), &slice, metav1.UpdateOptions{})
	r.must(err)
	r.until("a slice without labels is ours again", func() bool { return len(r.theSlices("web")) == 1 })
}

// TestNames: Gateways may have names that Services may not.
func TestNames(t *testing.T) {
	r := newRig(t, Options{})
	r.engineOn("a", time.Now(), "192.0.2.1")
	for _, name := range []string{"web.example.com", "1web", strings.Repeat("w", 63)} {
		r.makeGateway(strings.Replace(gatewayOf80, "name: web", "name: "+name, 1))
		r.until("a Service for "+name, func() bool { return r.theService(name) != nil })
	}
	long := strings.Repeat("w", 64)
	r.makeGateway(strings.Replace(gatewayOf80, "name: web", "name: "+long, 1))
	r.until("the name is too long", func() bool { return reason(r.theGateway(long).Status.Conditions, "Programmed") == "False(Invalid)" })
}

// TestDescribed: what a Gateway no longer says of its Service goes, and what others have
// written stays; a Gateway of another class has no Service.
func TestDescribed(t *testing.T) {
	r := newRig(t, Options{})
	r.makeGateway(gatewayOf80)
	change := func(f func(*gatewayv1.Gateway)) {
		g := r.theGateway("web")
		f(g)
		_, err := r.gateway.GatewayV1().Gateways("shop").Update(t.Context(), g, metav1.UpdateOptions{})
		r.must(err)
	}
	change(func(g *gatewayv1.Gateway) {
		g.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{Annotations: map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{"a": "1"}, Labels: map[gatewayv1.LabelKey]gatewayv1.LabelValue{"l": "1"}}
	})
	has := func(a, l string) func() bool {
		return func() bool {
			s := r.theService("web")
			return s != nil && s.Annotations["a"] == a && s.Labels["l"] == l
		}
	}
	r.until("the Service is described", has("1", "1"))
	s := r.theService("web")
	s.Annotations["own"] = "x"
	_, err := r.core.CoreV1().Services("shop").Update(t.Context(), s, metav1.UpdateOptions{})
	r.must(err)
	gone := has("", "")
	r.until("what was described is gone", func() bool { // the fake API takes a status's whole object
		change(func(g *gatewayv1.Gateway) { g.Spec.Infrastructure = nil })
		return gone()
	})
	if s := r.theService("web"); s.Annotations["own"] != "x" {
		t.Errorf("annotations of others are gone: %v", s.Annotations)
	}
	_, err = r.gateway.GatewayV1().GatewayClasses().Create(t.Context(), &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "other.example/x"}}, metav1.CreateOptions{})
	r.must(err)
	r.until("the Service is gone", func() bool {
		change(func(g *gatewayv1.Gateway) { g.Spec.GatewayClassName = "other" })
		return r.theService("web") == nil
	})
}
