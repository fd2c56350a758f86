package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// world is a cluster that changes at random.
type world struct {
	*rand.Rand
	routes   map[types.NamespacedName]*gatewayv1.HTTPRoute
	grpc     map[types.NamespacedName]*gatewayv1.GRPCRoute
	services map[types.NamespacedName]*corev1.Service
	fixed    *Objects
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), routes: map[types.NamespacedName]*gatewayv1.HTTPRoute{}, grpc: map[types.NamespacedName]*gatewayv1.GRPCRoute{}, services: map[types.NamespacedName]*corev1.Service{}}
	w.fixed = many(0)
	w.fixed.Gateways = append(w.fixed.Gateways, &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{
			{Name: "a", Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: ptr.To(gatewayv1.Hostname("*.a.example.com"))},
			{Name: "b", Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: ptr.To(gatewayv1.Hostname("b.example.com"))},
			{Name: "refused", Port: 81, Protocol: "SMTP"},
		}},
	})
	w.fixed.BackendTLSPolicies = []*gatewayv1.BackendTLSPolicy{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tls"},
		Spec: gatewayv1.BackendTLSPolicySpec{
			TargetRefs: []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Kind: "Service", Name: "s1"}}},
			Validation: gatewayv1.BackendTLSPolicyValidation{Hostname: "in.example.com", WellKnownCACertificates: ptr.To(gatewayv1.WellKnownCACertificatesSystem)},
		},
	}}
	return w
}

func (w *world) objects() *Objects {
	o := *w.fixed
	o.Services = map[types.NamespacedName]*corev1.Service{}
	for name, s := range w.services {
		o.Services[name] = s
	}
	for _, r := range w.routes {
		o.HTTPRoutes = append(o.HTTPRoutes, r)
	}
	for _, r := range w.grpc {
		o.GRPCRoutes = append(o.GRPCRoutes, r)
	}
	return &o
}

func pickOne[T any](w *world, list ...T) T { return list[w.IntN(len(list))] }

// change makes some changes.
func (w *world) change() Changes {
	c := Changes{HTTPRoutes: map[types.NamespacedName]*gatewayv1.HTTPRoute{}, GRPCRoutes: map[types.NamespacedName]*gatewayv1.GRPCRoute{}, Services: map[types.NamespacedName]*corev1.Service{}, Moved: map[types.NamespacedName]struct{}{}}
	for range 1 + w.IntN(3) {
		name := types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("s%d", w.IntN(5))}
		common := gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: pickOne[gatewayv1.ObjectName](w, "gw", "other", "gone")}, {Name: "other", SectionName: ptr.To(pickOne[gatewayv1.SectionName](w, "a", "b", "refused"))}}}
		meta := metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("r%d", w.IntN(6)), CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9+w.IntN(3)), 0))}
		key := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
		hosts := []gatewayv1.Hostname{"x.a.example.com", "*.a.example.com", "b.example.com", "c.example.com"}
		w.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		hosts = hosts[:w.IntN(4)]
		ref := gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", w.IntN(5))), Port: ptr.To(gatewayv1.PortNumber(80))}}
		switch w.IntN(6) {
		case 0, 1:
			r := &gatewayv1.HTTPRoute{ObjectMeta: meta, Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: common, Hostnames: hosts}}
			for range 1 + w.IntN(2) {
				r.Spec.Rules = append(r.Spec.Rules, gatewayv1.HTTPRouteRule{
					Matches:     []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: ptr.To(pickOne(w, "/", "/a", "/b"))}}},
					BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: ref}},
				})
			}
			w.routes[key], c.HTTPRoutes[key] = r, r
		case 2:
			delete(w.routes, key)
			c.HTTPRoutes[key] = nil
		case 3:
			r := &gatewayv1.GRPCRoute{ObjectMeta: meta, Spec: gatewayv1.GRPCRouteSpec{CommonRouteSpec: common, Hostnames: hosts, Rules: []gatewayv1.GRPCRouteRule{{BackendRefs: []gatewayv1.GRPCBackendRef{{BackendRef: ref}}}}}}
			if w.IntN(3) == 0 {
				r = nil
				delete(w.grpc, key)
			} else {
				w.grpc[key] = r
			}
			c.GRPCRoutes[key] = r
		case 4:
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name.Name}, Spec: corev1.ServiceSpec{
				SessionAffinity: pickOne(w, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone), Ports: []corev1.ServicePort{{Port: pickOne[int32](w, 80, 81)}},
			}}
			w.services[name], c.Services[name] = s, s
		case 5:
			delete(w.services, name)
			c.Services[name] = nil
		}
		c.Moved[name] = struct{}{}
	}
	return c
}

// TestUpdate: whatever changes, the table is the one that compiling everything
// gives.
func TestUpdate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(seed)
	options := Options{Endpoints: endpointOf, TableOnly: true}
	out := Compile(w.objects(), options)
	for i := range 2000 {
		changes := w.change()
		before := out.Table.String()
		old := out.Table
		if !out.Update(changes, options) {
			t.Fatal("everything has to be compiled")
		}
		want := Compile(w.objects(), options)
		if got := out.Table.String(); got != want.Table.String() {
			t.Fatalf("after %d changes, the last being %+v, the table is\n%s\nwant\n%s", i, changes, got, want.Table)
		}
		if old.String() != before {
			t.Fatal("the table that is served was changed")
		}
		for name, p := range want.Table.Pools {
			if got := out.Table.Pools[name]; got.Algorithm != p.Algorithm || got.TLS != nil != (p.TLS != nil) {
				t.Fatalf("pool %s is %+v, want %+v", name, got, p)
			}
		}
		if len(out.compiler.refs.users) != len(out.Table.Pools) || len(out.sources) != len(out.Table.Pools) {
			t.Fatalf("%d pools, of which %d have users and %d a source", len(out.Table.Pools), len(out.compiler.refs.users), len(out.sources))
		}
	}
}

// TestUpdateEverything: what more depends on than routes is not brought up to
// date by itself.
func TestUpdateEverything(t *testing.T) {
	o := many(2)
	name := types.NamespacedName{Namespace: "shop", Name: ServiceName("gw")}
	o.Services[name] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name.Name, Labels: map[string]string{gatewayv1.GatewayNameLabelKey: "gw"}}}
	out := Compile(o, Options{TableOnly: true})
	if out.Update(Changes{Services: map[types.NamespacedName]*corev1.Service{name: nil}}, Options{}) {
		t.Error("the Gateway's own Service is taken for another")
	}
	if Compile(o, Options{}).Update(Changes{}, Options{}) {
		t.Error("statuses would not be what they should")
	}
}

// TestUpdateCost: a change costs the same whether there are a hundred routes or
// five thousand, but for copying what finds them.
func TestUpdateCost(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{100, 5000} {
		options := Options{Endpoints: endpointOf, TableOnly: true}
		out := Compile(many(n), options)
		i := 0
		name := types.NamespacedName{Namespace: "shop", Name: "web-7"}
		allocations[n] = testing.AllocsPerRun(100, func() {
			i++
			if !out.Update(Changes{HTTPRoutes: map[types.NamespacedName]*gatewayv1.HTTPRoute{name: manyRoute(7, fmt.Sprint("/", i))}}, options) {
				t.Fatal("everything has to be compiled")
			}
		})
	}
	if few, many := allocations[100], allocations[5000]; many > 2*few+200 {
		t.Errorf("a change allocates %.0f times at 5,000 routes, %.0f times at 100", many, few)
	}
}

func BenchmarkUpdate(b *testing.B) {
	options := Options{Endpoints: endpointOf, TableOnly: true}
	out := Compile(many(5000), options)
	name := types.NamespacedName{Namespace: "shop", Name: "web-7"}
	for b.Loop() {
		out.Update(Changes{HTTPRoutes: map[types.NamespacedName]*gatewayv1.HTTPRoute{name: manyRoute(7, "/new")}}, options)
	}
}

// TestManyHostnames: among many listeners, the one for a name is the one that a
// walk through all finds.
func TestManyHostnames(t *testing.T) {
	o := many(0)
	l := &o.Gateways[0].Spec.Listeners
	*l = nil
	names := []string{"", "*.example.com", "*.a.example.com", "a.example.com", "b.a.example.com", "*.com", "example.org", "x.example.org", "y.example.org", "*.example.net"}
	for i, n := range names {
		*l = append(*l, gatewayv1.Listener{Name: gatewayv1.SectionName(fmt.Sprint(i)), Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: ptr.To(gatewayv1.Hostname(n))})
	}
	s := Compile(o, Options{}).Table.Sockets[0]
	walked := *s
	walked.Listeners = slices.Clone(s.Listeners)
	for _, name := range append([]string{"c.b.a.example.com", "z.com", "example.com", ".example.com", "example", "x.y.example.net", "com", "*.example.com"}, names...) {
		few := walked
		few.Listeners = nil
		got := s.Listener(name)
		for _, one := range walked.Listeners {
			few.Listeners = append(few.Listeners[:0:0], one)
			few.Index()
			if few.Listener(name) != nil {
				if got != one {
					t.Errorf("%q: listener %v, want %q", name, got, one.Hostname)
				}
				break
			}
		}
	}
}
