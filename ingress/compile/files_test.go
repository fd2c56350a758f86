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

// withFiles are a listener and an Ingress that ask for certificates in files.
func withFiles(option string) *Objects {
	o := many(1)
	o.Gateways[0].Spec.Listeners[0] = gatewayv1.Listener{Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, TLS: &gatewayv1.ListenerTLSConfig{
		Options: map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{OptionCertificate: gatewayv1.AnnotationValue(option)},
	}}
	o.IngressClasses = []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: networkingv1.IngressClassSpec{Controller: IngressController}}}
	class, kind := "fairway", networkingv1.PathTypePrefix
	o.Ingresses = []*networkingv1.Ingress{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class, TLS: []networkingv1.IngressTLS{{Hosts: []string{"shop.example"}}},
			Rules: []networkingv1.IngressRule{{Host: "shop.example", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &kind, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: "web-0", Port: networkingv1.ServiceBackendPort{Number: 80},
				}}}},
			}}}},
		},
	}}
	return o
}

// TestFiles: listeners and Ingresses that name no Secret are served with
// certificates of the engine's files, and the controller, which has none, doesn't
// complain.
func TestFiles(t *testing.T) {
	text := aPair(t)
	pair, err := tls.X509KeyPair(text[corev1.TLSCertKey], text[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	files := func(hostname string) []*tls.Certificate { asked[hostname] = true; return []*tls.Certificate{&pair} }
	out := Compile(withFiles("file"), Options{Endpoints: endpointOf, Files: files, TableOnly: true})
	served := 0
	for _, s := range out.Table.Sockets {
		for _, l := range s.Listeners {
			if len(l.Certificates) == 1 && l.Certificates[0] == &pair {
				served++
			}
		}
	}
	if served != 2 || !asked[""] || !asked["shop.example"] {
		t.Errorf("%d listeners have the certificate, want 2; asked for %v", served, asked)
	}
	none := Compile(withFiles("file"), Options{Endpoints: endpointOf, Files: func(string) []*tls.Certificate { return nil }, TableOnly: true})
	for _, s := range none.Table.Sockets {
		if s.TLS && len(s.Listeners) > 0 {
			t.Errorf("%s is served without a certificate", s.Name)
		}
	}
	told := Compile(withFiles("file"), Options{})
	if len(told.Problems) > 0 {
		t.Errorf("problems %v", told.Problems)
	}
	if ports := told.Gateways[IngressGateway].Ports; len(ports) != 2 {
		t.Errorf("Ingresses have ports %v, want 80 and 443", ports)
	}
	name := types.NamespacedName{Namespace: "shop", Name: "gw"}
	if ports := told.Gateways[name].Ports; len(ports) != 1 {
		t.Errorf("the Gateway has ports %v", ports)
	}
	for _, c := range Compile(withFiles("elsewhere"), Options{}).Gateways[name].Status.Listeners[0].Conditions {
		if c.Type == string(gatewayv1.ListenerConditionResolvedRefs) && c.Status == metav1.ConditionTrue {
			t.Error("another value of the option is taken")
		}
	}
}
