package gateway

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"
	"sigs.k8s.io/yaml"

	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/watch"
)

// waitTimeout bounds how long a test waits for what has to happen.
const waitTimeout = 2 * time.Minute

// rig is a controller with an API of its own. Its objects are read through
// watches, so what is written is seen a little later: wait for it.
type rig struct {
	*testing.T
	*Controller
	core    *fake.Clientset
	gateway *gatewayfake.Clientset
	events  *record.FakeRecorder
}

func newRig(t *testing.T, options Options) *rig {
	r := &rig{T: t, core: fake.NewClientset(), gateway: gatewayfake.NewSimpleClientset(), events: record.NewFakeRecorder(1000)}
	kinds := map[string][]string{
		"v1":                            {"namespaces", "services"},
		"discovery.k8s.io/v1":           {"endpointslices"},
		"networking.k8s.io/v1":          {"ingressclasses", "ingresses"},
		gatewayv1.GroupVersion.String(): {"gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "tcproutes", "udproutes", "backendtlspolicies", "referencegrants"},
	}
	for version, names := range kinds {
		list := &metav1.APIResourceList{GroupVersion: version}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		r.core.Resources = append(r.core.Resources, list)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	r.Controller = &Controller{
		options: options, watch: watch.NewFor(r.core, r.gateway, log), recorder: r.events, log: log,
		certificates: ingress.NewCertificates(), told: map[ingress.Problem]bool{},
	}
	r.must(r.makeClasses(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	synced, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); r.watch.Run(ctx, func() { close(synced) }) }()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-synced:
	case <-time.After(waitTimeout):
		t.Fatal("the watches have not seen all objects")
	}
	r.awaitWatches(len(slices.Concat(slices.Collect(maps.Values(kinds))...)))
	return r
}

// awaitWatches waits until a number of watches is open: the fake API forgets
// what happens between a list and its watch.
func (r *rig) awaitWatches(want int) {
	r.Helper()
	for late := range wait.Tries(waitTimeout) {
		n := 0
		for _, a := range slices.Concat(r.core.Actions(), r.gateway.Actions()) {
			if a.GetVerb() == "watch" {
				n++
			}
		}
		if n >= want {
			return
		}
		if late {
			r.Fatalf("%d watches of %d are open", n, want)
		}
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// until syncs until what is asked for is so.
func (r *rig) until(what string, done func() bool) {
	r.Helper()
	var err error
	for range wait.Tries(waitTimeout) {
		if err = r.sync(r.Context()); err == nil && done() {
			return
		}
	}
	r.Fatalf("not reached: %s (last error: %v)", what, err)
}

// engineOn has a node run an engine, as long as its Lease holds.
func (r *rig) engineOn(node string, renewed time.Time, addresses ...string) {
	r.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	_, err := r.core.CoreV1().Nodes().Create(r.Context(), n, metav1.CreateOptions{})
	r.must(err)
	seconds, at := int32(40), metav1.NewMicroTime(renewed)
	_, err = r.core.CoordinationV1().Leases(metav1.NamespaceSystem).Create(r.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "fairway-gateway-" + node, Labels: map[string]string{watch.EngineLabel: "true"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}, metav1.CreateOptions{})
	r.must(err)
	r.lookAtEngines(r.Context(), time.Now())
}

func from[T any](r *rig, text string) *T {
	r.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		r.Fatalf("%v in\n%s", err, text)
	}
	return out
}

// makeGateway makes a Gateway of the namespace shop.
func (r *rig) makeGateway(text string) {
	r.Helper()
	_, err := r.gateway.GatewayV1().Gateways("shop").Create(r.Context(), from[gatewayv1.Gateway](r, text), metav1.CreateOptions{})
	r.must(err)
}

func (r *rig) makeService(text string) {
	r.Helper()
	s := from[corev1.Service](r, text)
	_, err := r.core.CoreV1().Services(s.Namespace).Create(r.Context(), s, metav1.CreateOptions{})
	r.must(err)
}

// makeSlice makes a slice of a Service's port without a name.
func (r *rig) makeSlice(service, name string, port int32, addresses ...string) {
	r.Helper()
	family, empty, protocol := discoveryv1.AddressTypeIPv4, "", corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &empty, Port: &port, Protocol: &protocol}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	_, err := r.core.DiscoveryV1().EndpointSlices("shop").Create(r.Context(), slice, metav1.CreateOptions{})
	r.must(err)
}

// theService is a Gateway's; nil if it isn't there.
func (r *rig) theService(gateway string) *corev1.Service {
	s, err := r.core.CoreV1().Services("shop").Get(r.Context(), ingress.ServiceName(gateway), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return s
}

// theSlices are those of a Gateway's Service, by name.
func (r *rig) theSlices(gateway string) map[string]discoveryv1.EndpointSlice {
	r.Helper()
	list, err := r.core.DiscoveryV1().EndpointSlices("shop").List(r.Context(), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + ingress.ServiceName(gateway),
	})
	r.must(err)
	out := map[string]discoveryv1.EndpointSlice{}
	for _, s := range list.Items {
		out[s.Name] = s
	}
	return out
}

func (r *rig) theGateway(name string) *gatewayv1.Gateway {
	r.Helper()
	g, err := r.gateway.GatewayV1().Gateways("shop").Get(r.Context(), name, metav1.GetOptions{})
	r.must(err)
	return g
}

// giveAddress is what the load balancer does.
func (r *rig) giveAddress(gateway string, addresses ...string) {
	r.Helper()
	s := r.theService(gateway)
	s.Status.LoadBalancer.Ingress = nil
	for _, a := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	_, err := r.core.CoreV1().Services("shop").UpdateStatus(r.Context(), s, metav1.UpdateOptions{})
	r.must(err)
}

// reason is the status and the reason of a condition: "False(Reason)".
func reason(list []metav1.Condition, kind string) string {
	for _, c := range list {
		if c.Type == kind {
			return string(c.Status) + "(" + c.Reason + ")"
		}
	}
	return ""
}

const gatewayOf80 = `
metadata: {name: web, namespace: shop, uid: uid-of-web}
spec:
  gatewayClassName: fairway
  listeners: [{name: http, port: 80, protocol: HTTP}]
`
