package registry

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/validation"
)

// Resources maps the resources of a group to what serves them.
type Resources map[string]rest.Storage

// opener opens stores one after the other and remembers the first failure.
type opener struct {
	typer   runtime.ObjectTyper
	options generic.RESTOptionsGetter
	err     error
}

// Open opens the stores of all kinds. Endpoints are checked against cluster.
func Open(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, a *allocator.Allocator, cluster validation.Cluster) (map[schema.GroupVersion]Resources, error) {
	o := &opener{typer: typer, options: options}
	groups := map[schema.GroupVersion]Resources{
		corev1.SchemeGroupVersion:         o.core(a, cluster),
		appsv1.SchemeGroupVersion:         o.apps(),
		coordinationv1.SchemeGroupVersion: o.plain(leases()),
		discoveryv1.SchemeGroupVersion:    o.plain(endpointSlices(cluster)),
		networkingv1.SchemeGroupVersion:   o.networking(),
	}
	if o.err != nil {
		return nil, o.err
	}
	return groups, nil
}

// openable is any kind[T, O].
type openable interface {
	name() string
	open(runtime.ObjectTyper, generic.RESTOptionsGetter) (*REST, *statusREST, error)
}

func (k *kind[T, O]) name() string { return k.resource }

// plain opens kinds that need nothing but their description.
func (o *opener) plain(kinds ...openable) Resources {
	out := Resources{}
	for _, k := range kinds {
		o.add(out, k)
	}
	return out
}

func (o *opener) add(out Resources, k openable) (*REST, *statusREST) {
	if o.err != nil {
		return nil, nil
	}
	main, status, err := k.open(o.typer, o.options)
	if err != nil {
		o.err = fmt.Errorf("open %s: %w", k.name(), err)
		return nil, nil
	}
	out[k.name()] = main
	if status != nil {
		out[k.name()+"/status"] = status
	}
	return main, status
}

func (o *opener) core(a *allocator.Allocator, cluster validation.Cluster) Resources {
	out := o.plain(nodes(), configMaps(), secrets(), events(), serviceAccounts(), endpoints(cluster))
	pod, _ := o.add(out, pods())
	service, serviceStatus := o.add(out, services())
	namespace, namespaceStatus := o.add(out, namespaces())
	if o.err != nil {
		return nil
	}
	out["pods/binding"] = &bindingREST{store: pod.Store}
	out["services"] = newServiceREST(service, a)
	out["services/status"] = serviceStatus
	out["namespaces"] = newNamespaceREST(namespace, namespaceStatus)
	out["namespaces/finalize"] = newFinalizeREST(namespace)
	return out
}

func (o *opener) apps() Resources {
	out := o.plain(replicaSets())
	deployment, _ := o.add(out, deployments())
	if o.err != nil {
		return nil
	}
	out["deployments/scale"] = &scaleREST{store: deployment.Store}
	return out
}

func (o *opener) networking() Resources { return o.plain(ingresses(), ingressClasses()) }
