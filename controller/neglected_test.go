//go:build !race

package controller_test

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/controller/addresses"
	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// neglected are objects that nobody acts on, and the Event that says so.
var neglected = []struct{ resource, object, reason, says string }{
	{"networking.k8s.io/v1/ingresses", "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: no-class}, spec: {rules: [{host: a.example.com}]}}",
		ingress.ReasonNothingActs, "names no class"},
	{"networking.k8s.io/v1/ingresses", "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: class-typo}, spec: {ingressClassName: farway, rules: [{host: a.example.com}]}}",
		ingress.ReasonNothingActs, `no IngressClass "farway"; spec.ingressClassName: fairway`},
	{"gateway.networking.k8s.io/v1/gateways", "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: gateway-typo}, spec: {gatewayClassName: farway, listeners: [{name: http, port: 80, protocol: HTTP}]}}",
		ingress.ReasonNothingActs, `no GatewayClass "farway"`},
	{"gateway.networking.k8s.io/v1/httproutes", "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: route-typo}, spec: {parentRefs: [{name: gatevay}]}}",
		ingress.ReasonNothingActs, "there is no Gateway"},
	{"metallb.io/v1beta1/ipaddresspools", "{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: pool-elsewhere}, spec: {addresses: [192.0.2.200-192.0.2.201]}}",
		addresses.ReasonNothingActs, "in namespace " + v1beta1.DefaultNamespace + " only"},
	{"metallb.io/v1beta1/l2advertisements", "{apiVersion: metallb.io/v1beta1, kind: L2Advertisement, metadata: {name: l2-elsewhere}}",
		addresses.ReasonNothingActs, "in namespace " + v1beta1.DefaultNamespace + " only"},
	{"metallb.io/v1beta1/bgpadvertisements", "{apiVersion: metallb.io/v1beta1, kind: BGPAdvertisement, metadata: {name: bgp-elsewhere}}",
		addresses.ReasonNothingActs, "in namespace " + v1beta1.DefaultNamespace + " only"},
	{"v1/services", "{apiVersion: v1, kind: Service, metadata: {name: unannounced}, spec: {type: LoadBalancer, loadBalancerIP: 192.0.2.103, ports: [{port: 80}]}}",
		addresses.ReasonNotAnnounced, "no node announces"},
	{"v1/services", "{apiVersion: v1, kind: Service, metadata: {name: no-address}, spec: {type: LoadBalancer, loadBalancerIP: 192.0.2.250, ports: [{port: 80}]}}",
		"AllocationFailed", "192.0.2.250"},
	{"v1/services", "{apiVersion: v1, kind: Service, metadata: {name: no-pods}, spec: {selector: {app: none}, ports: [{port: 80}]}}",
		"NoEndpoints", "matches no pod"},
}

// testNeglected: of each kind of object that may be neglected an Event says that nobody acts on it.
func testNeglected(r *rig) {
	client, err := dynamic.NewForConfig(r.config)
	if err != nil {
		r.Fatal(err)
	}
	var names []string
	for _, n := range neglected {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(n.object), &o.Object); err != nil {
			r.Fatal(err)
		}
		names = append(names, o.GetName())
		at := strings.LastIndex(n.resource, "/")
		version, err := schema.ParseGroupVersion(n.resource[:at])
		if err != nil {
			r.Fatal(err)
		}
		if _, err := client.Resource(version.WithResource(n.resource[at+1:])).Namespace(r.ns).Create(r.Context(), o, metav1.CreateOptions{}); err != nil {
			r.Fatalf("%s: %v", n.object, err)
		}
	}
	r.Cleanup(func() { r.deleteService("unannounced") }) // others want its address
	for i, n := range neglected {
		r.expectEvent(names[i], n.reason, n.says)
	}
}
