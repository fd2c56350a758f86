package apiserver

import (
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
)

// gatewayAPI is the group whose kinds refer to certificates.
var gatewayAPI = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}

// balancerConfig configures the former service-loadbalancer's Services.
var balancerConfig = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "service-loadbalancer"}

// ofNginx is what annotations of ingress-nginx begin with.
const ofNginx = "nginx.ingress.kubernetes.io/"

// referrers reads what refers to Secrets of Gateways.
type referrers struct {
	core   kubernetes.Interface
	custom dynamic.Interface
	grants []unstructured.Unstructured
	names  []types.NamespacedName
}

// listGatewaySecrets returns what rights.GatewaySecrets asks: it reads anew, from the
// server's own cache, what refers to Secrets, and names these.
func listGatewaySecrets(loopback *rest.Config) (func(context.Context) ([]types.NamespacedName, error), error) {
	core, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return nil, fmt.Errorf("create loopback client: %w", err)
	}
	custom, err := dynamic.NewForConfig(dynamic.ConfigFor(loopback))
	if err != nil {
		return nil, fmt.Errorf("create loopback client: %w", err)
	}
	return func(ctx context.Context) (_ []types.NamespacedName, err error) {
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
		return r.names, r.balancer(ctx)
	}, nil
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

// reference takes a reference in, unless it leads to another namespace without a grant.
func (r *referrers) reference(of *unstructured.Unstructured, ref map[string]any) {
	if text(ref, "group") != "" || text(ref, "kind") != "" && text(ref, "kind") != "Secret" {
		return
	}
	name := types.NamespacedName{Namespace: of.GetNamespace(), Name: text(ref, "name")}
	if n := text(ref, "namespace"); n != "" {
		name.Namespace = n
	}
	if name.Namespace == of.GetNamespace() || slices.ContainsFunc(r.grants, func(g unstructured.Unstructured) bool { return grants(&g, of, name) }) {
		r.names = append(r.names, name)
	}
}

// grants reports whether a ReferenceGrant lets an object refer to a Secret.
func grants(g, of *unstructured.Unstructured, name types.NamespacedName) bool {
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
		return text(m, "group") == "" && text(m, "kind") == "Secret" && (text(m, "name") == "" || text(m, "name") == name.Name)
	})
}

func text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// ingresses takes in what Ingresses refer to, which is in their own namespace.
func (r *referrers) ingresses(ctx context.Context) error {
	list, err := r.core.NetworkingV1().Ingresses("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Ingresses: %w", err)
	}
	for i := range list.Items {
		for _, name := range secretsOf(&list.Items[i]) {
			r.names = append(r.names, types.NamespacedName{Namespace: list.Items[i].Namespace, Name: name})
		}
	}
	return nil
}

func secretsOf(o *networkingv1.Ingress) []string {
	names := []string{o.Annotations[ofNginx+"auth-secret"], strings.TrimPrefix(o.Annotations[ofNginx+"auth-tls-secret"], o.Namespace+"/")}
	for _, t := range o.Spec.TLS {
		names = append(names, t.SecretName)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// balancer takes in the certificates of the former service-loadbalancer's Services.
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
		r.names = append(r.names, name)
	}
	return nil
}
