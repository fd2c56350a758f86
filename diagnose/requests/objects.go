// Package requests says what Gateways and Ingresses do with a request, by what the API or
// manifests say.
package requests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/ingress/assess"
	ingress "github.com/fairway-net/fairway/ingress/compile"
	l7 "github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/watch"
	"github.com/fairway-net/fairway/model"
)

// referencesTimeout is how long the API may take to tell all that Gateways depend on.
const referencesTimeout = 30 * time.Second

// takers list the endpoints of a Service's port.
type takers func(service types.NamespacedName, port *corev1.ServicePort) []model.Backend

// compileRequests compiles what there is of Gateways, routes and Ingresses.
func compileRequests(objects *ingress.Objects, list takers) *ingress.Output {
	return ingress.Compile(objects, ingress.Options{Endpoints: func(service types.NamespacedName, port *corev1.ServicePort) []l7.Endpoint {
		var out []l7.Endpoint
		for _, b := range list(service, port) {
			out = append(out, l7.Endpoint{Addr: netip.AddrPortFrom(b.Addr, b.Port), Weight: int(b.Weight)})
		}
		return out
	}})
}

// FromAPI asks the API, once. One that doesn't answer is given up at once where it can be told:
// the watches would wait for it.
func FromAPI(ctx context.Context, source *collect.Source) (*ingress.Output, error) {
	config, err := source.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(source.WithFirstAnswerTimeout(config))
	if err != nil {
		return nil, err
	}
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("ask the API for Gateways and Ingresses, which agents can't tell: %w", err)
	}
	w, err := watch.New(config, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, referencesTimeout)
	defer cancel()
	synced := make(chan struct{})
	go w.Run(ctx, func() { close(synced) })
	select {
	case <-synced:
		for {
			out := compileRequests(w.Objects(), w.ReadyBackends)
			if !w.Refer(ctx, out.Secrets, out.ConfigMaps) {
				return out, nil
			}
		}
	case <-ctx.Done():
		return nil, errors.New("read Gateways, routes, Services, EndpointSlices, Secrets and ConfigMaps: the API didn't tell them all; may you read them?")
	}
}

// FromFiles compiles manifests. What they hold besides is named in ignored; what they
// refer to and don't hold is taken as given where that makes sense, and named in given:
// classes, certificates, and Services if there are none.
func FromFiles(files []string) (out *ingress.Output, ignored, given []string, err error) {
	objects, choice, ignored, err := Objects(files)
	if err != nil {
		return nil, nil, nil, err
	}
	if given, err = assess.Complete(objects); err != nil {
		return nil, nil, nil, err
	}
	return compileRequests(objects, takersOf(choice)), ignored, given, nil
}

// takersOf says which endpoints take connections, as a compiler chooses them.
func takersOf(choice *compile.Compiler) func(types.NamespacedName, *corev1.ServicePort) []model.Backend {
	return func(service types.NamespacedName, port *corev1.ServicePort) []model.Backend {
		proto := model.TCP
		if port.Protocol == corev1.ProtocolUDP {
			proto = model.UDP
		}
		return choice.ReadyBackends(service, port.Name, proto)
	}
}

// Objects reads manifests, and what chooses endpoints among theirs.
func Objects(files []string) (objects *ingress.Objects, choice *compile.Compiler, ignored []string, err error) {
	kinds := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(kinds))
	utilruntime.Must(gatewayv1.Install(kinds))
	infos, err := resource.NewLocalBuilder().WithScheme(kinds, kinds.PrioritizedVersionsAllGroups()...).
		FilenameParam(false, &resource.FilenameOptions{Filenames: files}).Flatten().Do().Infos()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read manifests: %w", err)
	}
	objects = &ingress.Objects{
		Namespaces: map[string]*corev1.Namespace{}, Services: map[types.NamespacedName]*corev1.Service{},
		Secrets: map[types.NamespacedName]*corev1.Secret{}, ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{},
	}
	choice = compile.New(compile.Config{})
	for _, info := range infos {
		if !add(objects, choice, info.Object) {
			ignored = append(ignored, fmt.Sprintf("%s %s/%s", info.Object.GetObjectKind().GroupVersionKind().Kind, info.Namespace, info.Name))
		}
	}
	return objects, choice, ignored, nil
}

// inNamespace is an object's name, in the namespace that kubectl would take.
func inNamespace(namespace *string, name string) types.NamespacedName {
	if *namespace == "" {
		*namespace = corev1.NamespaceDefault
	}
	return types.NamespacedName{Namespace: *namespace, Name: name}
}

// add adds an object; false if it is of a kind that nobody asks for.
func add(o *ingress.Objects, choice *compile.Compiler, object runtime.Object) bool {
	switch x := object.(type) {
	case *corev1.Namespace:
		o.Namespaces[x.Name] = x
	case *corev1.Service:
		o.Services[inNamespace(&x.Namespace, x.Name)] = x
		choice.SetService(x)
	case *corev1.Secret:
		o.Secrets[inNamespace(&x.Namespace, x.Name)] = withStrings(x)
	case *corev1.ConfigMap:
		o.ConfigMaps[inNamespace(&x.Namespace, x.Name)] = x
	case *discoveryv1.EndpointSlice:
		inNamespace(&x.Namespace, x.Name)
		delete(x.Labels, corev1.IsHeadlessService) // routes lead to those too
		choice.SetSlice(x)
	case *networkingv1.IngressClass:
		o.IngressClasses = append(o.IngressClasses, x)
	case *networkingv1.Ingress:
		inNamespace(&x.Namespace, x.Name)
		o.Ingresses = append(o.Ingresses, x)
	default:
		return addGateway(o, object)
	}
	return true
}

// withStrings has stringData in data, as the API does.
func withStrings(s *corev1.Secret) *corev1.Secret {
	for key, text := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(text)
	}
	return s
}

// addGateway adds an object of Gateway API; false if it isn't one.
func addGateway(o *ingress.Objects, object runtime.Object) bool {
	switch x := object.(type) {
	case *gatewayv1.GatewayClass:
		o.Classes = append(o.Classes, x)
	case *gatewayv1.Gateway:
		inNamespace(&x.Namespace, x.Name)
		o.Gateways = append(o.Gateways, x)
	case *gatewayv1.ListenerSet:
		inNamespace(&x.Namespace, x.Name)
		o.ListenerSets = append(o.ListenerSets, x)
	case *gatewayv1.HTTPRoute:
		inNamespace(&x.Namespace, x.Name)
		o.HTTPRoutes = append(o.HTTPRoutes, x)
	case *gatewayv1.GRPCRoute:
		inNamespace(&x.Namespace, x.Name)
		o.GRPCRoutes = append(o.GRPCRoutes, x)
	case *gatewayv1.TLSRoute:
		inNamespace(&x.Namespace, x.Name)
		o.TLSRoutes = append(o.TLSRoutes, x)
	case *gatewayv1.TCPRoute:
		inNamespace(&x.Namespace, x.Name)
		o.TCPRoutes = append(o.TCPRoutes, x)
	case *gatewayv1.UDPRoute:
		inNamespace(&x.Namespace, x.Name)
		o.UDPRoutes = append(o.UDPRoutes, x)
	case *gatewayv1.BackendTLSPolicy:
		inNamespace(&x.Namespace, x.Name)
		o.BackendTLSPolicies = append(o.BackendTLSPolicies, x)
	case *gatewayv1.ReferenceGrant:
		inNamespace(&x.Namespace, x.Name)
		o.Grants = append(o.Grants, x)
	default:
		return false
	}
	return true
}
