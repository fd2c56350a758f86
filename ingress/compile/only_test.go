package compile

import (
	"crypto/tls"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestOnly: a table of one Gateway has its ports, routes and Secrets only, also after
// changes of what belongs to others, for which nothing is compiled anew.
func TestOnly(t *testing.T) {
	o := withFiles("file")
	o.Gateways = append(o.Gateways, &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{
			Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
			TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "other"}}},
		}}},
	})
	text := aPair(t)
	pair, err := tls.X509KeyPair(text[corev1.TLSCertKey], text[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	files := func(string) []*tls.Certificate { return []*tls.Certificate{&pair} }
	all := Compile(o, Options{Endpoints: endpointOf, Files: files, TableOnly: true})
	if len(all.Table.Sockets) < 3 || len(all.Secrets) == 0 {
		t.Fatalf("of all: %d ports, Secrets %v", len(all.Table.Sockets), all.Secrets)
	}
	for _, one := range []types.NamespacedName{nameOf(o.Gateways[0]), IngressGateway} {
		options := Options{Endpoints: endpointOf, Files: files, TableOnly: true, Only: func(name types.NamespacedName) bool { return name == one }}
		out := Compile(o, options)
		check := func() {
			t.Helper()
			if len(out.Table.Sockets) == 0 || len(out.Secrets) != 0 {
				t.Errorf("%s: %d ports, Secrets %v", one, len(out.Table.Sockets), out.Secrets)
			}
			for _, s := range out.Table.Sockets {
				if got := s.Name[:len(one.String())]; got != one.String() {
					t.Errorf("%s has the port %s", one, s.Name)
				}
			}
		}
		check()
		if one != IngressGateway {
			changed := o.Ingresses[0].DeepCopy()
			changed.Annotations = map[string]string{"a": "b"}
			if !out.Update(Changes{Ingresses: map[types.NamespacedName]*networkingv1.Ingress{nameOf(changed): changed}}, options) {
				t.Error("all is compiled for an Ingress of others")
			}
			check()
		}
	}
}
