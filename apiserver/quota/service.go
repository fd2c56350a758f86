package quota

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var (
	servicesResource = corev1.Resource("services")
	serviceNames     = []corev1.ResourceName{
		generic.ObjectCountQuotaResourceNameFor(servicesResource),
		corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
)

// services counts Services: in other ways than objects, since their type may change.
type services struct {
	quota.Evaluator
	list generic.ListFuncByNamespace
}

func newServices(list generic.ListFuncByNamespace) quota.Evaluator {
	return services{generic.NewObjectCountEvaluator(servicesResource, list, corev1.ResourceServices), list}
}

// Handles implements quota.Evaluator.
func (services) Handles(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// Matches implements quota.Evaluator.
func (s services) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, s.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources implements quota.Evaluator.
func (services) MatchingResources(input []corev1.ResourceName) []corev1.ResourceName {
	return quota.Intersection(input, serviceNames)
}

// Usage implements quota.Evaluator.
func (services) Usage(item runtime.Object) (corev1.ResourceList, error) {
	svc, ok := item.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("count Services: %T is none", item)
	}
	ports, balancers := 0, 0
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(svc.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		ports, balancers = len(svc.Spec.Ports), 1
		if allocate := svc.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			ports -= len(slices.DeleteFunc(slices.Clone(svc.Spec.Ports), func(p corev1.ServicePort) bool { return p.NodePort != 0 }))
		}
	}
	used := corev1.ResourceList{}
	for i, n := range []int{1, 1, ports, balancers} {
		used[serviceNames[i]] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return used, nil
}

// UsageStats implements quota.Evaluator.
func (s services) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, s.list, generic.MatchesNoScopeFunc, s.Usage)
}
