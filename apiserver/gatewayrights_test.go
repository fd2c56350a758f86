package apiserver

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairway-net/fairway/apiserver/rights"
)

// gatewayTable is all that the gateway of n1 may do, but for Secrets and ConfigMaps.
var gatewayTable = map[string]string{
	"services": "list watch", "namespaces": "list watch", "endpointslices.discovery.k8s.io": "list watch",
	"ingresses.networking.k8s.io": "list watch", "ingressclasses.networking.k8s.io": "list watch",
}

// TestGatewayRights tries all there is, as a gateway. Roles bound to its group change
// nothing.
func TestGatewayRights(t *testing.T) {
	s := sharedServer(t)
	kubectl(t, s, "", "create", "clusterrolebinding", "everybody", "--clusterrole=cluster-admin", "--group="+rights.GatewaysGroup, "--user=system:fairway:gateway:n1")
	gateway := &user.DefaultInfo{Name: "system:fairway:gateway:n1", Groups: []string{rights.GatewaysGroup, user.AllAuthenticated}}
	unnamed := &user.DefaultInfo{Name: "system:fairway:gateway:", Groups: gateway.Groups}
	for _, resource := range servedResources(t, s) {
		for _, verb := range everyVerb {
			for _, namespace := range []string{"", "default", "kube-system"} {
				for _, object := range []string{"", "n1", "n2"} {
					want := slices.Contains(strings.Fields(gatewayTable[resource]), verb)
					switch full, group, _ := strings.Cut(resource, "."); {
					case resource == "nodes":
						want = verb == "get" && object == "n1"
					case group == "gateway.networking.k8s.io" && !strings.Contains(full, "/"):
						want = verb == "list" || verb == "watch"
					}
					if got := allowed(t, s, gateway, verb, resource, namespace, object); got != want {
						t.Errorf("%s %s %q in %q: allowed %v, want %v", verb, resource, object, namespace, got, want)
					}
					if allowed(t, s, unnamed, verb, resource, namespace, object) {
						t.Errorf("without a name: %s %s %q in %q", verb, resource, object, namespace)
					}
				}
			}
		}
	}
}

// referring are objects that refer to Secrets named after how they do.
const referring = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec:
  gatewayClassName: fairway
  tls:
    backend: {clientCertificateRef: {name: client}}
    frontend: {default: {validation: {caCertificateRefs: [{group: "", kind: Secret, name: clients-ca}, {group: "", kind: ConfigMap, name: map}]}}}
  listeners:
  - {name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: listener}, {name: granted, namespace: other}, {name: not-granted, namespace: other}, {name: sa-token}, {name: missing}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: grant, namespace: other}
spec:
  from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: shop}]
  to: [{group: "", kind: Secret, name: granted}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: ingress
  namespace: shop
  annotations: {nginx.ingress.kubernetes.io/auth-secret: passwords, nginx.ingress.kubernetes.io/auth-tls-secret: shop/ingress-ca,
    nginx.ingress.kubernetes.io/proxy-ssl-secret: shop/upstream, nginx.ingress.kubernetes.io/custom-headers: shop/headers, nginx.ingress.kubernetes.io/auth-proxy-set-headers: question}
spec: {tls: [{hosts: [a.example], secretName: ingress}], defaultBackend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: service-loadbalancer, namespace: kube-system}
data: {ssl-cert: other/balancer, ssl-ca-cert: balancer-ca}
`

// TestSecretsOfGateways: a gateway reads those Secrets and ConfigMaps that something
// refers to, each by its name, as soon as it does, and no others and no tokens.
func TestSecretsOfGateways(t *testing.T) {
	s := sharedServer(t)
	admin, ctx := client(t, s), within(t)
	kubeconfig, err := s.Kubeconfig("system:fairway:gateway:n1", rights.GatewaysGroup)
	if err != nil {
		t.Fatal(err)
	}
	gateway := kubeconfigClient(t, kubeconfig)
	var manifest strings.Builder
	names := []string{"client", "clients-ca", "map", "listener", "granted", "not-granted", "passwords", "ingress-ca", "upstream", "ingress", "balancer", "balancer-ca", "unrelated"}
	for _, namespace := range []string{"shop", "other"} {
		manifest.WriteString("---\n{apiVersion: v1, kind: Namespace, metadata: {name: " + namespace + "}}\n")
	}
	for _, namespace := range []string{"shop", "other", "kube-system"} {
		for _, name := range names {
			manifest.WriteString("---\n{apiVersion: v1, kind: Secret, metadata: {name: " + name + ", namespace: " + namespace + "}}\n")
		}
	}
	manifest.WriteString("---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: admin, namespace: shop}}\n")
	manifest.WriteString("---\n{apiVersion: v1, kind: Secret, metadata: {name: sa-token, namespace: shop, annotations: {kubernetes.io/service-account.name: admin}}, type: kubernetes.io/service-account-token}\n")
	kubectl(t, s, manifest.String(), "apply", "-f", "-")
	check := func(when string, want ...string) {
		t.Helper()
		for _, namespace := range []string{"shop", "other", "kube-system"} {
			for _, name := range append(names, "sa-token", "missing") {
				ok := slices.Contains(want, namespace+"/"+name)
				_, err := gateway.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsForbidden(err) == ok {
					t.Errorf("%s, Secret %s/%s: %v, want allowed %v", when, namespace, name, err, ok)
				}
				list, err := gateway.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
				if apierrors.IsForbidden(err) == ok || err == nil && len(list.Items) > 1 {
					t.Errorf("%s, list of Secret %s/%s: %v, want allowed %v", when, namespace, name, err, ok)
				}
			}
			if _, err := gateway.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("%s, all Secrets of %s: %v", when, namespace, err)
			}
		}
	}
	maps := []string{"map", "headers", "question", "service-loadbalancer", "fairway-acme-challenges", "client", "kube-root-ca.crt"}
	checkMaps := func(when string, want ...string) {
		t.Helper()
		for _, namespace := range []string{"shop", "other", "kube-system"} {
			for _, name := range maps {
				ok := slices.Contains(want, namespace+"/"+name)
				_, err := gateway.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsForbidden(err) == ok {
					t.Errorf("%s, ConfigMap %s/%s: %v, want allowed %v", when, namespace, name, err, ok)
				}
			}
			if _, err := gateway.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("%s, all ConfigMaps of %s: %v", when, namespace, err)
			}
		}
	}
	always := []string{"kube-system/service-loadbalancer", "kube-system/fairway-acme-challenges"}
	check("nothing refers")
	checkMaps("nothing refers", always...)
	kubectl(t, s, referring, "apply", "-f", "-")
	check("referred to", "shop/client", "shop/clients-ca", "shop/listener", "shop/missing", "other/granted", "shop/passwords", "shop/ingress-ca", "shop/upstream", "shop/ingress", "other/balancer", "kube-system/balancer-ca")
	checkMaps("referred to", append(always, "shop/map", "shop/headers", "shop/question")...)
	if _, err := admin.CoreV1().Secrets("shop").Get(ctx, "sa-token", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
