package fakeapi

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
	"pods":           {Version: "v1", Kind: "Pod"},
	"events":         {Version: "v1", Kind: "Event"},
	"endpointslices": {Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
	"servicecidrs":   {Group: "networking.k8s.io", Version: "v1", Kind: "ServiceCIDR"}, // for kube-proxy
}

func resourceOf(o *unstructured.Unstructured) (string, bool) {
	for resource, gvk := range kinds {
		if o.GroupVersionKind() == gvk {
			return resource, true
		}
	}
	return "", false
}

// NodeProxier are the rules that the ClusterRole system:node-proxier, which
// kube-proxy works with, has in every Kubernetes from 1.28 to 1.37: those that
// 1.28 bootstraps. NodeProxierOf has what later ones add.
func NodeProxier() []rbacv1.PolicyRule { return NodeProxierOf(28) }

// serviceCIDRsSince is the Kubernetes 1.x whose role allows to watch ServiceCIDRs
// too: by default. In 1.30 to 1.32 it takes the gate MultiCIDRServiceAllocator.
const serviceCIDRsSince = 33

// NodeProxierOf are the rules of system:node-proxier as Kubernetes 1.minor
// bootstraps them with its default feature gates. They were compared with
// nodeProxierRules in plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go
// of 1.28.15, 1.29.14, 1.30.14, 1.31.14, 1.32.9, 1.33.6, 1.34.2, 1.35.0, 1.36.3
// and 1.37.0, and with eventsRule in controller_policy.go of 1.28.15 and 1.36.3.
func NodeProxierOf(minor int) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "endpoints"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	}
	if minor >= serviceCIDRsSince {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: []string{"list", "watch"}})
	}
	return rules
}

// Allowed tells whether rules allow an access.
func Allowed(rules []rbacv1.PolicyRule, a Access) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, a.Group) && slices.Contains(r.Resources, a.Resource) && slices.Contains(r.Verbs, a.Verb)
	})
}
