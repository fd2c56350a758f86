package registry

import (
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func deployments() *kind[appsv1.Deployment, *appsv1.Deployment] {
	return &kind[appsv1.Deployment, *appsv1.Deployment]{
		version: appsv1.SchemeGroupVersion, resource: "deployments", singular: "deployment",
		shortNames: []string{"deploy"}, categories: []string{"all"},
		list:           func() runtime.Object { return &appsv1.DeploymentList{} },
		prepareCreate:  func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} },
		prepareUpdate:  func(d, old *appsv1.Deployment) { d.Status = old.Status },
		generation:     func(d, old *appsv1.Deployment) bool { return !equality.Semantic.DeepEqual(d.Spec, old.Spec) },
		validate:       validation.Deployment,
		validateUpdate: validation.DeploymentUpdate,
		status: &status[appsv1.Deployment, *appsv1.Deployment]{
			keep:           func(d, old *appsv1.Deployment) { d.Spec, d.Labels = old.Spec, old.Labels },
			validateUpdate: validation.DeploymentStatus,
		},
		table: tables.Deployments(),
	}
}

func replicaSets() *kind[appsv1.ReplicaSet, *appsv1.ReplicaSet] {
	return &kind[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
		version: appsv1.SchemeGroupVersion, resource: "replicasets", singular: "replicaset",
		shortNames: []string{"rs"}, categories: []string{"all"},
		list:           func() runtime.Object { return &appsv1.ReplicaSetList{} },
		prepareCreate:  func(r *appsv1.ReplicaSet) { r.Status = appsv1.ReplicaSetStatus{} },
		prepareUpdate:  func(r, old *appsv1.ReplicaSet) { r.Status = old.Status },
		generation:     func(r, old *appsv1.ReplicaSet) bool { return !equality.Semantic.DeepEqual(r.Spec, old.Spec) },
		validate:       validation.ReplicaSet,
		validateUpdate: validation.ReplicaSetUpdate,
		status: &status[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
			keep: func(r, old *appsv1.ReplicaSet) { r.Spec = old.Spec },
		},
		table: tables.ReplicaSets(),
	}
}

func leases() *kind[coordinationv1.Lease, *coordinationv1.Lease] {
	return &kind[coordinationv1.Lease, *coordinationv1.Lease]{
		version: coordinationv1.SchemeGroupVersion, resource: "leases", singular: "lease",
		list:           func() runtime.Object { return &coordinationv1.LeaseList{} },
		createOnUpdate: true,
		validate:       validation.Lease,
		table:          tables.Leases(),
	}
}

func endpointSlices(cluster validation.Cluster) *kind[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice] {
	return &kind[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]{
		version: discoveryv1.SchemeGroupVersion, resource: "endpointslices", singular: "endpointslice",
		list: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
		generation: func(e, old *discoveryv1.EndpointSlice) bool {
			return !equality.Semantic.DeepEqual(e.Endpoints, old.Endpoints) || !equality.Semantic.DeepEqual(e.Ports, old.Ports) ||
				!equality.Semantic.DeepEqual(e.Labels, old.Labels)
		},
		validate:       cluster.EndpointSlice,
		validateUpdate: validation.EndpointSliceUpdate,
		table:          tables.EndpointSlices(),
	}
}

func ingresses() *kind[networkingv1.Ingress, *networkingv1.Ingress] {
	return &kind[networkingv1.Ingress, *networkingv1.Ingress]{
		version: networkingv1.SchemeGroupVersion, resource: "ingresses", singular: "ingress",
		shortNames:    []string{"ing"},
		list:          func() runtime.Object { return &networkingv1.IngressList{} },
		prepareCreate: func(i *networkingv1.Ingress) { i.Status = networkingv1.IngressStatus{} },
		prepareUpdate: func(i, old *networkingv1.Ingress) { i.Status = old.Status },
		generation:    func(i, old *networkingv1.Ingress) bool { return !equality.Semantic.DeepEqual(i.Spec, old.Spec) },
		validate:      validation.Ingress,
		status: &status[networkingv1.Ingress, *networkingv1.Ingress]{
			keep:           func(i, old *networkingv1.Ingress) { i.Spec = old.Spec },
			validateUpdate: validation.IngressStatus,
		},
		table: tables.Ingresses(),
	}
}

func ingressClasses() *kind[networkingv1.IngressClass, *networkingv1.IngressClass] {
	return &kind[networkingv1.IngressClass, *networkingv1.IngressClass]{
		version: networkingv1.SchemeGroupVersion, resource: "ingressclasses", singular: "ingressclass",
		list:           func() runtime.Object { return &networkingv1.IngressClassList{} },
		clusterScoped:  true,
		generation:     func(c, old *networkingv1.IngressClass) bool { return !equality.Semantic.DeepEqual(c.Spec, old.Spec) },
		validate:       validation.IngressClass,
		validateUpdate: validation.IngressClassUpdate,
		table:          tables.IngressClasses(),
	}
}
