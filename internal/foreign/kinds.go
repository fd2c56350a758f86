package foreign

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds are what the server serves.
var kinds = map[string]schema.GroupVersionKind{
	"services":       {Version: "v1", Kind: "Service"},
	"nodes":          {Version: "v1", Kind: "Node"},
	"events":         {Version: "v1", Kind: "Event"},
	"endpointslices": {Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
}

func resourceOf(o *unstructured.Unstructured) (string, bool) {
	for resource, gvk := range kinds {
		if o.GroupVersionKind() == gvk {
			return resource, true
		}
	}
	return "", false
}

// NodeProxier are the rules of the ClusterRole system:node-proxier, which
// kube-proxy works with, as Kubernetes 1.28 to 1.37 bootstraps them (later ones
// may add to them, none takes away).
// Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.
func NodeProxier() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "endpoints"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	}
}

// Allowed tells whether rules allow an access.
func Allowed(rules []rbacv1.PolicyRule, a Access) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, a.Group) && slices.Contains(r.Resources, a.Resource) && slices.Contains(r.Verbs, a.Verb)
	})
}
