package registry

import (
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func deployments() *kind[appsv1.Deployment, *appsv1.Deployment] {
	return &kind[appsv1.Deployment, *appsv1.Deployment]{
		version: appsv1.SchemeGroupVersion, resource: "deployments", singular: "deployment",
		shortNames: []string{"deploy"}, categories: []string{"all"},
		list:  func() runtime.Object { return &appsv1.DeploymentList{} },
		rules: upstream.Deployments,
		table: tables.Deployments(),
	}
}

func replicaSets() *kind[appsv1.ReplicaSet, *appsv1.ReplicaSet] {
	return &kind[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
		version: appsv1.SchemeGroupVersion, resource: "replicasets", singular: "replicaset",
		shortNames: []string{"rs"}, categories: []string{"all"},
		list:  func() runtime.Object { return &appsv1.ReplicaSetList{} },
		rules: upstream.ReplicaSets,
		table: tables.ReplicaSets(),
	}
}

func leases() *kind[coordinationv1.Lease, *coordinationv1.Lease] {
	return &kind[coordinationv1.Lease, *coordinationv1.Lease]{
		version: coordinationv1.SchemeGroupVersion, resource: "leases", singular: "lease",
		list:  func() runtime.Object { return &coordinationv1.LeaseList{} },
		rules: upstream.Leases,
		table: tables.Leases(),
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
		prepareCreate: dropTopology,
		prepareUpdate: func(e, _ *discoveryv1.EndpointSlice) { dropTopology(e) },
		validate:      cluster.EndpointSlice,
		table:         tables.EndpointSlices(),
	}
}

func ingresses() *kind[networkingv1.Ingress, *networkingv1.Ingress] {
	return &kind[networkingv1.Ingress, *networkingv1.Ingress]{
		version: networkingv1.SchemeGroupVersion, resource: "ingresses", singular: "ingress",
		shortNames: []string{"ing"},
		list:       func() runtime.Object { return &networkingv1.IngressList{} },
		rules:      upstream.Ingresses,
		table:      tables.Ingresses(),
	}
}

func ingressClasses() *kind[networkingv1.IngressClass, *networkingv1.IngressClass] {
	return &kind[networkingv1.IngressClass, *networkingv1.IngressClass]{
		version: networkingv1.SchemeGroupVersion, resource: "ingressclasses", singular: "ingressclass",
		list:  func() runtime.Object { return &networkingv1.IngressClassList{} },
		rules: upstream.IngressClasses,
		table: tables.IngressClasses(),
	}
}

// dropTopology drops what nodeName and zone took the place of.
func dropTopology(e *discoveryv1.EndpointSlice) {
	for i := range e.Endpoints {
		e.Endpoints[i].DeprecatedTopology = nil
	}
}
