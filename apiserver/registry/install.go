package registry

import (
	"fmt"
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
	acting  Acting
	slices  rest.Storage // of EndpointSlices, once they are open
	err     error
}

// Open opens the stores of all kinds. Endpoints are checked against cluster; what
// runs in Pods is asked of kubelet, and what nodes do of agents.
func Open(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, a *allocator.Allocator, cluster validation.Cluster, access Access, kubelet Kubelet, agents NodeAgents, acting Acting) (map[schema.GroupVersion]Resources, error) {
	o := &opener{typer: typer, options: options, acting: acting}
	core := o.core(a, cluster, access, kubelet, agents)
	if o.err != nil {
		return nil, o.err
	}
	groups := map[schema.GroupVersion]Resources{
		corev1.SchemeGroupVersion:                  core,
		admissionregistrationv1.SchemeGroupVersion: o.plain(mutatingPolicies(), mutatingPolicyBindings(), validatingPolicies(), validatingPolicyBindings(), validatingWebhooks(), mutatingWebhooks()),
		appsv1.SchemeGroupVersion:                  o.apps(),
		authenticationv1.SchemeGroupVersion:        access.authentication(),
		authorizationv1.SchemeGroupVersion:         access.authorization(),
		batchv1.SchemeGroupVersion:                 o.plain(jobs(), cronJobs()),
		certificatesv1.SchemeGroupVersion:          o.certificates(access),
		coordinationv1.SchemeGroupVersion:          o.plain(leases()),
		discoveryv1.SchemeGroupVersion:             o.plain(endpointSlices(cluster)),
		eventsv1.SchemeGroupVersion:                {"events": eventsREST{core["events"].(*REST)}},
		flowcontrolv1.SchemeGroupVersion:           o.plain(flowSchemas(), priorityLevels()),
		networkingv1.SchemeGroupVersion:            o.networking(),
		policyv1.SchemeGroupVersion:                o.policy(core),
		rbacv1.SchemeGroupVersion:                  o.rbac(access),
		schedulingv1.SchemeGroupVersion:            o.plain(priorityClasses()),
	}
	if o.err != nil {
		return nil, o.err
	}
	o.slices = groups[discoveryv1.SchemeGroupVersion]["endpointslices"]
	return groups, nil
}

// openable is any kind[T, O].
type openable interface {
	name() string
	unattended() string
	open(runtime.ObjectTyper, generic.RESTOptionsGetter) (*REST, *statusREST, error)
}

func (k *kind[T, O]) name() string { return k.resource }

// unattended is what the kind's users are told if nothing acts on it.
func (k *kind[T, O]) unattended() string { return k.idle }

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
	o.acting.eventOnCreate(main.Store, k.unattended())
	out[k.name()] = main
	if status != nil {
		out[k.name()+"/status"] = status
	}
	return main, status
}

func (o *opener) core(a *allocator.Allocator, cluster validation.Cluster, access Access, kubelet Kubelet, agents NodeAgents) Resources {
	out := o.plain(configMaps(), secrets(), events(), endpoints(cluster), limitRanges(), resourceQuotas(), podTemplates())
	node, _ := o.add(out, nodes())
	replication, _ := o.add(out, replicationControllers())
	account, _ := o.add(out, serviceAccounts())
	podKind := pods()
	podKind.idle = o.acting.pods("Pod")
	pod, _ := o.add(out, podKind)
	service, serviceStatus := o.add(out, services())
	namespace, namespaceStatus := o.add(out, namespaces())
	if o.err != nil {
		return nil
	}
	out["replicationcontrollers/scale"] = &scaleREST{store: replication.Store}
	out["serviceaccounts/token"] = &tokenREST{store: account.Store, issue: access.Issue}
	out["pods/binding"] = &bindingREST{store: pod.Store}
	maps.Copy(out, podStreams(pod.Store, kubelet))
	out["pods/proxy"] = podProxy(pod.Store)
	out["services/proxy"] = serviceProxy(service.Store, func() (rest.Lister, bool) { l, ok := o.slices.(rest.Lister); return l, ok })
	out["nodes/proxy"] = &nodeProxyREST{store: node.Store, agents: agents}
	out["services"] = newServiceREST(service, a)
	out["services/status"] = serviceStatus
	out["namespaces"] = newNamespaceREST(namespace, namespaceStatus)
	out["namespaces/finalize"] = newFinalizeREST(namespace)
	return out
}

// policy opens the budgets, by which core's Pods are evicted.
func (o *opener) policy(core Resources) Resources {
	out := Resources{}
	_, budgets := o.add(out, disruptionBudgets())
	if o.err != nil {
		return nil
	}
	core["pods/eviction"] = &evictionREST{pods: core["pods"].(*REST).Store, budgets: budgets}
	return out
}

func (o *opener) apps() Resources {
	out := o.plain(daemonSets())
	stateful, _ := o.add(out, statefulSets())
	sets := replicaSets()
	sets.idle = o.acting.pods("ReplicaSet")
	set, _ := o.add(out, sets)
	kind := deployments()
	kind.idle = o.acting.pods("Deployment")
	deployment, _ := o.add(out, kind)
	if o.err != nil {
		return nil
	}
	out["deployments/scale"] = &scaleREST{store: deployment.Store}
	out["statefulsets/scale"] = &scaleREST{store: stateful.Store}
	out["replicasets/scale"] = &scaleREST{store: set.Store}
	return out
}

func (o *opener) networking() Resources {
	out := o.plain(ingresses(), ingressClasses(), networkPolicies(), ipAddresses())
	main, _ := o.add(out, serviceCIDRs())
	out["servicecidrs"] = &serviceCIDRREST{REST: main}
	return out
}
