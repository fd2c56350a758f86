package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver/rights"
)

// gatewayAPI is the group whose kinds refer to certificates and authorities.
var gatewayAPI = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}

// balancerConfig is the ConfigMap of service-loadbalancer, a proxy of early Kubernetes whose
// annotated Services gateways serve, too.
var balancerConfig = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "service-loadbalancer"}

// ofNginx is what annotations of ingress-nginx begin with.
const ofNginx = "nginx.ingress.kubernetes.io/"

// acmeChallenges is what engines answer ACME's challenges with.
var acmeChallenges = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "fairway-acme-challenges"}

// Annotations of Ingresses that name a Secret or a ConfigMap, each of their own namespace.
var (
	secretAnnotations    = []string{ofNginx + "auth-secret", ofNginx + "auth-tls-secret", ofNginx + "proxy-ssl-secret"}
	configMapAnnotations = []string{ofNginx + "auth-proxy-set-headers", ofNginx + "custom-headers"}
)

// referrers collects the Secrets and ConfigMaps that gateways may read: those that Gateways,
// policies and Ingresses refer to.
type referrers struct {
	core   kubernetes.Interface
	custom dynamic.Interface
	grants []unstructured.Unstructured
	found  []rights.Reference
}

// listGatewayReferences returns what rights.GatewayReferences asks: it reads anew, from
// the server's own cache, what refers to Secrets and ConfigMaps, and names these.
func listGatewayReferences(loopback *rest.Config) (func(context.Context) ([]rights.Reference, error), error) {
	core, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return nil, fmt.Errorf("create loopback client: %w", err)
	}
	custom, err := dynamic.NewForConfig(dynamic.ConfigFor(loopback))
	if err != nil {
		return nil, fmt.Errorf("create loopback client: %w", err)
	}
	return func(ctx context.Context) (_ []rights.Reference, err error) {
		r := referrers{core: core, custom: custom}
		if r.grants, err = r.list(ctx, "referencegrants"); err != nil {
			return nil, err
		}
		for _, resource := range []string{"gateways", "listenersets", "backendtlspolicies"} {
			list, err := r.list(ctx, resource)
			if err != nil {
				return nil, err
			}
			for i := range list {
				r.walk(&list[i], "", list[i].Object["spec"])
			}
		}
		if err := r.ingresses(ctx); err != nil {
			return nil, err
		}
		r.add(rights.ConfigMaps, acmeChallenges.Namespace, acmeChallenges.Name)
		r.add(rights.ConfigMaps, balancerConfig.Namespace, balancerConfig.Name)
		return r.found, r.balancer(ctx)
	}, nil
}

func (r *referrers) add(resource, namespace, name string) {
	r.found = append(r.found, rights.Reference{Resource: resource, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
}

// list lists objects of Gateway API; none if it doesn't have the kind.
func (r *referrers) list(ctx context.Context, resource string) ([]unstructured.Unstructured, error) {
	list, err := r.custom.Resource(gatewayAPI.WithResource(resource)).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource, err)
	}
	return list.Items, nil
}

// walk finds the references to certificates and authorities in a field of an object.
func (r *referrers) walk(of *unstructured.Unstructured, field string, value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			r.walk(of, field, one)
		}
	case map[string]any:
		if field == "certificateRefs" || field == "caCertificateRefs" || field == "clientCertificateRef" {
			r.reference(of, v)
			return
		}
		for name, one := range v {
			r.walk(of, name, one)
		}
	}
}

// reference adds a reference, unless it leads to another namespace without a grant.
func (r *referrers) reference(of *unstructured.Unstructured, ref map[string]any) {
	kind := cmp.Or(text(ref, "kind"), "Secret")
	resource, known := map[string]string{"Secret": rights.Secrets, "ConfigMap": rights.ConfigMaps}[kind]
	if text(ref, "group") != "" || !known {
		return
	}
	name := types.NamespacedName{Namespace: of.GetNamespace(), Name: text(ref, "name")}
	if n := text(ref, "namespace"); n != "" {
		name.Namespace = n
	}
	if name.Namespace == of.GetNamespace() || slices.ContainsFunc(r.grants, func(g unstructured.Unstructured) bool { return grants(&g, of, kind, name) }) {
		r.add(resource, name.Namespace, name.Name)
	}
}

// grants reports whether a ReferenceGrant lets an object refer to another one of a kind.
func grants(g, of *unstructured.Unstructured, kind string, name types.NamespacedName) bool {
	has := func(list string, match func(map[string]any) bool) bool {
		items, _, err := unstructured.NestedSlice(g.Object, "spec", list)
		return err == nil && slices.ContainsFunc(items, func(item any) bool {
			m, ok := item.(map[string]any)
			return ok && match(m)
		})
	}
	return g.GetNamespace() == name.Namespace && has("from", func(m map[string]any) bool {
		return text(m, "group") == gatewayAPI.Group && text(m, "kind") == of.GetKind() && text(m, "namespace") == of.GetNamespace()
	}) && has("to", func(m map[string]any) bool {
		return text(m, "group") == "" && text(m, "kind") == kind && (text(m, "name") == "" || text(m, "name") == name.Name)
	})
}

func text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// ingresses adds what Ingresses refer to. An Ingress refers to its own namespace only.
func (r *referrers) ingresses(ctx context.Context) error {
	list, err := r.core.NetworkingV1().Ingresses("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Ingresses: %w", err)
	}
	for i := range list.Items {
		r.ingress(&list.Items[i])
	}
	return nil
}

func (r *referrers) ingress(o *networkingv1.Ingress) {
	addAnnotated := func(resource string, annotations []string) {
		for _, a := range annotations {
			// ingress-nginx accepts "name" and "namespace/name".
			if name := strings.TrimPrefix(o.Annotations[a], o.Namespace+"/"); name != "" {
				r.add(resource, o.Namespace, name)
			}
		}
	}
	addAnnotated(rights.Secrets, secretAnnotations)
	addAnnotated(rights.ConfigMaps, configMapAnnotations)
	for _, t := range o.Spec.TLS {
		if t.SecretName != "" {
			r.add(rights.Secrets, o.Namespace, t.SecretName)
		}
	}
}

// balancer adds the Secrets with the certificates that service-loadbalancer's ConfigMap names.
func (r *referrers) balancer(ctx context.Context) error {
	m, err := r.core.CoreV1().ConfigMaps(balancerConfig.Namespace).Get(ctx, balancerConfig.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", balancerConfig, err)
	}
	for _, key := range []string{"ssl-cert", "ssl-ca-cert"} {
		name := types.NamespacedName{Namespace: balancerConfig.Namespace, Name: m.Data[key]}
		if namespace, short, found := strings.Cut(m.Data[key], "/"); found {
			name = types.NamespacedName{Namespace: namespace, Name: short}
		}
		r.add(rights.Secrets, name.Namespace, name.Name)
	}
	return nil
}
