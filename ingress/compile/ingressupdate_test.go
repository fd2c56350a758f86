package compile

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// oneIngress sends a host's path to a Service.
func oneIngress(name, host, path, service string) *networkingv1.Ingress {
	o := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}}, Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("fairway")}}
	o.Spec.Rules = []networkingv1.IngressRule{ruleOf(host, path, service)}
	return o
}

func ruleOf(host, path, service string) networkingv1.IngressRule {
	return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
		Paths: []networkingv1.HTTPIngressPath{{Path: path, PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: 80}},
		}}},
	}}}
}

func withClass(o *Objects) *Objects {
	o.IngressClasses = []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: networkingv1.IngressClassSpec{Controller: IngressController}}}
	return o
}

// ingressWorld are Ingresses that change at random.
type ingressWorld struct {
	*rand.Rand
	ingresses map[types.NamespacedName]*networkingv1.Ingress
	services  map[types.NamespacedName]*corev1.Service
	secrets   map[types.NamespacedName]*corev1.Secret
}

func (w *ingressWorld) objects() *Objects {
	o := withClass(many(0))
	for name, s := range w.services {
		o.Services[name] = s
	}
	o.Secrets = w.secrets
	for _, one := range w.ingresses {
		o.Ingresses = append(o.Ingresses, one)
	}
	return o
}

func (w *ingressWorld) pick(list ...string) string { return list[w.IntN(len(list))] }

func (w *ingressWorld) change() Changes {
	c := Changes{Ingresses: map[types.NamespacedName]*networkingv1.Ingress{}, Services: map[types.NamespacedName]*corev1.Service{}}
	for range 1 + w.IntN(2) {
		if w.IntN(5) == 0 {
			name := types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("s", w.IntN(3))}
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name.Name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: int32(80 + w.IntN(2))}}}}
			if w.IntN(4) == 0 {
				s = nil
				delete(w.services, name)
			} else {
				w.services[name] = s
			}
			c.Services[name] = s
			continue
		}
		name := types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("i", w.IntN(8))}
		if w.IntN(5) == 0 {
			delete(w.ingresses, name)
			c.Ingresses[name] = nil
			continue
		}
		host := func() string {
			return w.pick("a.example.com", "b.example.com", "c.example.com", "d.example.com", "*.example.com", "")
		}
		o := oneIngress(name.Name, host(), w.pick("/", "/x"), fmt.Sprint("s", w.IntN(3)))
		o.CreationTimestamp = metav1.NewTime(time.Unix(int64(1e9+w.IntN(3)), 0))
		if w.IntN(2) == 0 {
			o.Spec.Rules = append(o.Spec.Rules, ruleOf(host(), "/y", fmt.Sprint("s", w.IntN(3))))
		}
		if w.IntN(2) == 0 {
			o.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{w.pick("a.example.com", "b.example.com", "*.example.com")}, SecretName: w.pick("one", "two")}}
		}
		switch w.IntN(20) {
		case 0:
			o.Annotations[nginx+"canary"], o.Annotations[nginx+"canary-weight"] = "true", "10"
		case 1:
			o.Annotations[nginx+"app-root"] = "/x"
		case 2:
			o.Spec.IngressClassName = ptr.To("other")
		case 3:
			o.Annotations[nginx+w.pick("from-to-www-redirect", "ssl-passthrough")] = "true"
		case 4:
			o.Annotations[nginx+"backend-protocol"] = "GRPC"
		}
		if name.Name != "i7" && w.IntN(3) > 0 { // most have nothing that others' hosts depend on
			delete(o.Annotations, nginx+"from-to-www-redirect")
			delete(o.Annotations, nginx+"ssl-passthrough")
		}
		w.ingresses[name], c.Ingresses[name] = o, o
	}
	return c
}

// TestUpdateIngresses: whatever changes of Ingresses and their Services, the table is
// the one that compiling everything gives.
func TestUpdateIngresses(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &ingressWorld{Rand: rand.New(rand.NewPCG(seed, 0)), ingresses: map[types.NamespacedName]*networkingv1.Ingress{}, services: map[types.NamespacedName]*corev1.Service{}}
	w.secrets = map[types.NamespacedName]*corev1.Secret{{Namespace: "shop", Name: "one"}: {Data: aPair(t)}, {Namespace: "shop", Name: "two"}: {Data: aPair(t)}}
	options := Options{Endpoints: endpointOf, TableOnly: true, Certificates: NewCertificates()}
	out := Compile(w.objects(), options)
	updated := 0
	for i := range 1000 {
		changes := w.change()
		old, before := out.Table, out.Table.String()
		if out.Update(changes, options) {
			updated++
		} else {
			out = Compile(w.objects(), options)
		}
		want := Compile(w.objects(), options)
		if got := out.Table.String(); got != want.Table.String() {
			t.Fatalf("after %d changes, the last being %+v, the table is\n%s\nwant\n%s", i, changes, got, want.Table)
		}
		if old.String() != before {
			t.Fatal("the table that is served was changed")
		}
		for j, s := range want.Table.Sockets {
			for k, l := range s.Listeners {
				if got := out.Table.Sockets[j].Listeners[k]; len(got.Certificates) != len(l.Certificates) || len(l.Certificates) > 0 && got.Certificates[0] != l.Certificates[0] {
					t.Fatalf("after %d changes, %s has another certificate", i, l.Name)
				}
			}
		}
		if len(out.compiler.refs.users) != len(out.Table.Pools) || len(out.sources) != len(out.Table.Pools) {
			t.Fatalf("%d pools, of which %d have users and %d a source", len(out.Table.Pools), len(out.compiler.refs.users), len(out.sources))
		}
	}
	if updated < 30 {
		t.Errorf("only %d changes of 1,000 were followed by themselves", updated)
	}
	t.Logf("%d changes were followed by themselves", updated)
}

// TestUpdateIngressCost: a change of an Ingress costs the same whether there are a
// hundred or five thousand, and so does one of its Service.
func TestUpdateIngressCost(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{100, 5000} {
		options := Options{Endpoints: endpointOf, TableOnly: true}
		out := Compile(manyIngresses(t, n), options)
		i := 0
		name := types.NamespacedName{Namespace: "shop", Name: "web-7"}
		allocations[n] = testing.AllocsPerRun(100, func() {
			i++
			one := secured(oneIngress("web-7", "web-7.example.com", fmt.Sprint("/", i), "web-7"))
			if !out.Update(Changes{Ingresses: map[types.NamespacedName]*networkingv1.Ingress{name: one}}, options) {
				t.Fatal("everything has to be compiled")
			}
			if !out.Update(Changes{Services: map[types.NamespacedName]*corev1.Service{name: out.compiler.Services[name].DeepCopy()}}, options) {
				t.Fatal("everything has to be compiled for a Service")
			}
		})
	}
	if few, many := allocations[100], allocations[5000]; many > 2*few+200 {
		t.Errorf("a change allocates %.0f times at 5,000 Ingresses, %.0f times at 100", many, few)
	}
}

func secured(o *networkingv1.Ingress) *networkingv1.Ingress {
	o.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{o.Spec.Rules[0].Host}, SecretName: "cert"}}
	return o
}

// manyIngresses are Ingresses with a host, a certificate and a Service each.
func manyIngresses(t testing.TB, n int) *Objects {
	o := withClass(many(n))
	o.HTTPRoutes = nil
	o.Secrets = map[types.NamespacedName]*corev1.Secret{{Namespace: "shop", Name: "cert"}: {Data: aPair(t)}}
	for i := range n {
		name := fmt.Sprint("web-", i)
		o.Ingresses = append(o.Ingresses, secured(oneIngress(name, name+".example.com", "/", name)))
	}
	return o
}

func BenchmarkIngress(b *testing.B) {
	options := Options{Endpoints: endpointOf, TableOnly: true}
	o := manyIngresses(b, 5000)
	out := Compile(o, options)
	name := types.NamespacedName{Namespace: "shop", Name: "web-7"}
	b.Run("update", func(b *testing.B) {
		for b.Loop() {
			out.Update(Changes{Ingresses: map[types.NamespacedName]*networkingv1.Ingress{name: secured(oneIngress("web-7", "web-7.example.com", "/new", "web-7"))}}, options)
		}
	})
	b.Run("everything", func(b *testing.B) {
		for b.Loop() {
			Compile(o, options)
		}
	})
}
