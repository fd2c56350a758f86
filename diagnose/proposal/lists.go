package proposal

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/pager"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/diagnose/change"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/ingress/assess"
	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// kinds are those that are understood.
var kinds = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(gatewayv1.Install(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	utilruntime.Must(v1beta2.AddToScheme(s))
	return s
}()

// poolResource is a resource of MetalLB's API.
func poolResource(name string) schema.GroupVersionResource {
	return v1beta1.GroupVersion.WithResource(name)
}

// gatewayResource is a resource of Gateway API.
func gatewayResource(name string) schema.GroupVersionResource {
	return schema.GroupVersion(gatewayv1.GroupVersion).WithResource(name)
}

// listed are the kinds that packets and requests depend on. Secrets are none: nobody's are read.
var listed = []struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
}{
	{corev1.SchemeGroupVersion.WithResource("services"), "Service", true},
	{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "EndpointSlice", true},
	{corev1.SchemeGroupVersion.WithResource("pods"), "Pod", true},
	{corev1.SchemeGroupVersion.WithResource("nodes"), "Node", false},
	{corev1.SchemeGroupVersion.WithResource("namespaces"), "Namespace", false},
	{appsv1.SchemeGroupVersion.WithResource("deployments"), "Deployment", true},
	{appsv1.SchemeGroupVersion.WithResource("statefulsets"), "StatefulSet", true},
	{appsv1.SchemeGroupVersion.WithResource("daemonsets"), "DaemonSet", true},
	{networkingv1.SchemeGroupVersion.WithResource("ingressclasses"), "IngressClass", false},
	{networkingv1.SchemeGroupVersion.WithResource("ingresses"), "Ingress", true},
	{gatewayResource("gatewayclasses"), "GatewayClass", false},
	{gatewayResource("gateways"), "Gateway", true},
	{gatewayResource("listenersets"), "ListenerSet", true},
	{gatewayResource("httproutes"), "HTTPRoute", true},
	{gatewayResource("grpcroutes"), "GRPCRoute", true},
	{gatewayResource("tlsroutes"), "TLSRoute", true},
	{gatewayResource("tcproutes"), "TCPRoute", true},
	{gatewayResource("udproutes"), "UDPRoute", true},
	{gatewayResource("backendtlspolicies"), "BackendTLSPolicy", true},
	{gatewayResource("referencegrants"), "ReferenceGrant", true},
	{poolResource("ipaddresspools"), "IPAddressPool", true},
	{poolResource("l2advertisements"), "L2Advertisement", true},
	{poolResource("bgpadvertisements"), "BGPAdvertisement", true},
	{v1beta2.GroupVersion.WithResource("bgppeers"), "BGPPeer", true},
	{poolResource("bfdprofiles"), "BFDProfile", true},
	{poolResource("communities"), "Community", true},
	{poolResource("configurationstates"), "ConfigurationState", true},
}

// object is one object, as it came and as its kind.
type object struct {
	raw  *unstructured.Unstructured
	made runtime.Object // from raw; nil if that wasn't needed yet
}

// as is the object as its kind.
func (o *object) as() (runtime.Object, error) {
	if o.made != nil {
		return o.made, nil
	}
	made, err := kinds.New(o.raw.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.raw.Object, made); err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", o.raw.GetKind(), o.raw.GetNamespace(), o.raw.GetName(), err)
	}
	o.made = made
	return made, nil
}

// world has all objects by kind and name. Kinds that were listed have an entry, if perhaps an
// empty one.
type world map[string]map[types.NamespacedName]*object

// kindOf is the kind of an object, if it is of a group that is understood.
func kindOf(u *unstructured.Unstructured) string {
	if _, err := kinds.New(u.GroupVersionKind()); err != nil {
		return u.GroupVersionKind().String()
	}
	return u.GetKind()
}

func (w world) has(kind string) bool { _, has := w[kind]; return has }

func (w world) set(kind string, name types.NamespacedName, o *object) {
	if w[kind] == nil {
		w[kind] = map[types.NamespacedName]*object{}
	}
	w[kind][name] = o
}

func (w world) clone() world {
	c := world{}
	for kind, objects := range w {
		c[kind] = maps.Clone(objects)
	}
	return c
}

// list lists what runs, each kind once. Kinds that this account may not list are named.
func (j *joiner) list(ctx context.Context) error {
	j.before = world{}
	for _, k := range listed {
		err := j.listKind(ctx, k.resource, k.kind, metav1.NamespaceAll)
		if apierrors.IsForbidden(err) && k.namespaced {
			all := err
			for _, namespace := range j.concerned() {
				if err = j.listKind(ctx, k.resource, k.kind, namespace); err != nil {
					break
				}
			}
			j.NotChecked = append(j.NotChecked, fmt.Sprintf("%s of other namespaces: %v", k.resource.Resource, all))
		}
		switch {
		case err == nil, apierrors.IsNotFound(err): // an API that has no such kind
		case k.kind == "Service":
			return fmt.Errorf("list Services: %w", err)
		case apierrors.IsForbidden(err):
			j.NotChecked = append(j.NotChecked, fmt.Sprintf("%s: %v", k.resource.Resource, err))
		default:
			return fmt.Errorf("list %s: %w", k.resource.Resource, err)
		}
	}
	return nil
}

// concerned are the namespaces of the manifests.
func (j *joiner) concerned() []string {
	var list []string
	for _, u := range j.proposed {
		namespace := u.GetNamespace()
		if namespace == "" {
			namespace = j.namespace
		}
		if !slices.Contains(list, namespace) {
			list = append(list, namespace)
		}
	}
	return list
}

func (j *joiner) listKind(ctx context.Context, gvr schema.GroupVersionResource, kind, namespace string) error {
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return j.client.Resource(gvr).Namespace(namespace).List(ctx, options)
	})
	p.FullListIfExpired = true
	found := map[types.NamespacedName]*object{}
	err := p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		u := o.(*unstructured.Unstructured)
		u.SetManagedFields(nil)
		found[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}] = &object{raw: u}
		return nil
	})
	if err != nil {
		return err
	}
	if j.before[kind] == nil {
		j.before[kind] = found
	} else {
		maps.Copy(j.before[kind], found)
	}
	return nil
}

// each calls f for the objects of a kind.
func each[T runtime.Object](w world, kind string, f func(T)) error {
	for _, o := range w[kind] {
		made, err := o.as()
		if err != nil {
			return err
		}
		if t, is := made.(T); is {
			f(t)
		}
	}
	return nil
}

// all are the objects of a kind.
func all[T runtime.Object](w world, kind string, failed *error) (list []T) {
	if err := each(w, kind, func(t T) { list = append(list, t) }); err != nil && *failed == nil {
		*failed = err
	}
	return list
}

// typed is what explain and compilers take.
func (w world) typed() (made change.World, err error) {
	o := &explain.Objects{
		Services: all[*corev1.Service](w, "Service", &err), Slices: all[*discoveryv1.EndpointSlice](w, "EndpointSlice", &err),
		Pods: all[*corev1.Pod](w, "Pod", &err), Nodes: all[*corev1.Node](w, "Node", &err), NoPolicies: "they are not compared",
	}
	if !w.has("Pod") {
		o.NoPods = "pods can't be listed"
	}
	r := &ingress.Objects{
		Namespaces: map[string]*corev1.Namespace{}, Services: map[types.NamespacedName]*corev1.Service{},
		Secrets: map[types.NamespacedName]*corev1.Secret{}, ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{},
		IngressClasses: all[*networkingv1.IngressClass](w, "IngressClass", &err), Ingresses: all[*networkingv1.Ingress](w, "Ingress", &err),
		Classes: all[*gatewayv1.GatewayClass](w, "GatewayClass", &err), Gateways: all[*gatewayv1.Gateway](w, "Gateway", &err),
		ListenerSets: all[*gatewayv1.ListenerSet](w, "ListenerSet", &err), HTTPRoutes: all[*gatewayv1.HTTPRoute](w, "HTTPRoute", &err),
		GRPCRoutes: all[*gatewayv1.GRPCRoute](w, "GRPCRoute", &err), TLSRoutes: all[*gatewayv1.TLSRoute](w, "TLSRoute", &err),
		TCPRoutes: all[*gatewayv1.TCPRoute](w, "TCPRoute", &err), UDPRoutes: all[*gatewayv1.UDPRoute](w, "UDPRoute", &err),
		BackendTLSPolicies: all[*gatewayv1.BackendTLSPolicy](w, "BackendTLSPolicy", &err), Grants: all[*gatewayv1.ReferenceGrant](w, "ReferenceGrant", &err),
	}
	for _, n := range all[*corev1.Namespace](w, "Namespace", &err) {
		r.Namespaces[n.Name] = n
	}
	for _, s := range o.Services {
		r.Services[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
	}
	if err != nil {
		return change.World{}, err
	}
	if err := assess.Certificates(r); err != nil { // none is read
		return change.World{}, err
	}
	made = change.World{Objects: o, Requests: r}
	return made, w.addPools(&made)
}
