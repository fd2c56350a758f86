// Package quota says what of a ResourceQuota is counted: the objects of a kind, and of
// Services the node ports and load balancers. Counting and refusing are the quota
// machinery's of k8s.io/apiserver.
//
//   - quota.go: what is counted, and what was
//   - service.go: what a Service uses
package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// List returns the objects of a resource in a namespace. The error wraps ErrNotServed if
// there is no such resource, or it isn't in namespaces.
type List func(ctx context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error)

// ErrNotServed is a resource whose objects can't be counted.
var ErrNotServed = errors.New("not served in namespaces")

// countPrefix begins the names of counts of any resource; "count/RESOURCE.GROUP".
const countPrefix = "count/"

// ownNames are the counts that have a name besides that with countPrefix.
var ownNames = map[schema.GroupResource]corev1.ResourceName{
	corev1.Resource("configmaps"):             corev1.ResourceConfigMaps,
	corev1.Resource("pods"):                   corev1.ResourcePods,
	corev1.Resource("replicationcontrollers"): corev1.ResourceReplicationControllers,
	corev1.Resource("resourcequotas"):         corev1.ResourceQuotas,
	corev1.Resource("secrets"):                corev1.ResourceSecrets,
}

// ignored are never counted: they end by themselves, and are limited for each user.
var ignored = map[schema.GroupResource]struct{}{
	corev1.Resource("events"): {}, {Group: "events.k8s.io", Resource: "events"}: {},
}

// Configuration is by what the machinery counts. Of other resources it counts objects by
// itself.
func Configuration() quota.Configuration {
	return generic.NewConfiguration(evaluators(func(schema.GroupResource) generic.ListFuncByNamespace { return nil }), ignored)
}

func evaluators(list func(schema.GroupResource) generic.ListFuncByNamespace) []quota.Evaluator {
	out := []quota.Evaluator{newServices(list(servicesResource))}
	for resource, name := range ownNames {
		out = append(out, generic.NewObjectCountEvaluator(resource, list(resource), name))
	}
	return out
}

// Count returns what of a quota is counted, with its limits, and how much of it is in use.
func (list List) Count(ctx context.Context, q *corev1.ResourceQuota) (hard, used corev1.ResourceList, err error) {
	if isScoped(q) {
		return corev1.ResourceList{}, corev1.ResourceList{}, nil
	}
	of := func(resource schema.GroupResource) generic.ListFuncByNamespace {
		return func(namespace string) ([]runtime.Object, error) { return list(ctx, resource, namespace) }
	}
	registry := generic.NewRegistry(evaluators(of))
	for name := range q.Spec.Hard {
		resource, ok := counted(name)
		if !ok || registry.Get(resource) != nil {
			continue
		}
		if _, err := list(ctx, resource, q.Namespace); errors.Is(err, ErrNotServed) {
			continue
		} else if err != nil {
			return nil, nil, fmt.Errorf("list %s: %w", resource, err)
		}
		registry.Add(generic.NewObjectCountEvaluator(resource, of(resource), ""))
	}
	var names []corev1.ResourceName
	for _, e := range registry.List() {
		names = append(names, e.MatchingResources(quota.ResourceNames(q.Spec.Hard))...)
	}
	hard = quota.Mask(q.Spec.Hard, names)
	used, err = quota.CalculateUsage(q.Namespace, nil, hard, registry, nil)
	return hard, used, err
}

// counted returns the resource that "count/RESOURCE.GROUP" names.
func counted(name corev1.ResourceName) (schema.GroupResource, bool) {
	rest, ok := strings.CutPrefix(string(name), countPrefix)
	if !ok {
		return schema.GroupResource{}, false
	}
	resource := schema.ParseGroupResource(rest)
	_, not := ignored[resource]
	return resource, !not
}

// isScoped reports whether a quota is for some Pods only, by what nothing here knows of
// Pods.
func isScoped(q *corev1.ResourceQuota) bool {
	return len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil
}

// Warnings says of a quota what of it is never counted.
func Warnings(q *corev1.ResourceQuota) []string {
	if isScoped(q) {
		return []string{"spec.scopes, spec.scopeSelector: nothing here tells Pods apart by scopes: this ResourceQuota limits nothing"}
	}
	var not []string
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		_, ok := counted(name)
		if !ok && !slices.Contains(serviceNames, name) && !slices.Contains(slices.Collect(maps.Values(ownNames)), name) {
			not = append(not, string(name))
		}
	}
	if not == nil {
		return nil
	}
	return []string{"spec.hard: not counted here, and not limited: " + strings.Join(not, ", ") + ". Counted are objects (services, secrets, count/RESOURCE.GROUP …), services.nodeports and services.loadbalancers"}
}
