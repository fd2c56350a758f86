// Package watch follows the objects that ingress/compile needs. Kinds that the
// API doesn't serve are not there, and are followed once it does. Secrets and
// ConfigMaps are read one by one, and only those that something refers to.
//
//	watch.go       kinds of which all objects are followed
//	references.go  Secrets and ConfigMaps
//	streams.go     objects that are taken in and not kept
//	changes.go     what has happened
//	objects.go     what is known, and how little of it
//	only.go        what belongs to one Gateway
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	"sigs.k8s.io/gateway-api/pkg/client/informers/externalversions"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// lookAgain is how often the API is asked for kinds that it didn't serve.
const lookAgain = 10 * time.Second

// Watch follows objects. Its clients may be used by others.
type Watch struct {
	Core    kubernetes.Interface
	Gateway versioned.Interface
	log     *slog.Logger
	kinds   []kind
	lean    bool                  // statuses are left out
	only    *types.NamespacedName // whose routes are kept; nil keeps all
	core    informers.SharedInformerFactory
	gateway externalversions.SharedInformerFactory

	changed chan struct{} // something happened that wasn't looked at yet
	mu      sync.Mutex
	changes Changes
	choice  *compile.Compiler // of endpoints
	started map[string]bool

	// What objects refer to is followed until running ends.
	secrets    *referenced[*corev1.Secret]
	configMaps *referenced[*corev1.ConfigMap]
	running    context.Context //nolint:containedctx // of threads that outlive calls
	end        context.CancelFunc
	threads    sync.WaitGroup
}

// kind is one that is followed.
type kind struct {
	version, resource string
	informer          func() cache.SharedIndexInformer
}

// New makes a watch that follows nothing yet.
func New(config *rest.Config, log *slog.Logger) (*Watch, error) {
	core := rest.CopyConfig(config)
	core.QPS = -1
	typed, err := kubernetes.NewForConfig(core)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	custom := rest.CopyConfig(core)
	custom.ContentType, custom.AcceptContentTypes = "application/json", "application/json"
	gateway, err := versioned.NewForConfig(custom)
	if err != nil {
		return nil, fmt.Errorf("make client for Gateway API: %w", err)
	}
	return NewFor(typed, gateway, log), nil
}

// NewFor makes a watch of clients that are there already.
func NewFor(core kubernetes.Interface, gateway versioned.Interface, log *slog.Logger) *Watch {
	w := &Watch{
		Core: core, Gateway: gateway, log: log, changed: make(chan struct{}, 1),
		changes: newChanges(), choice: compile.New(compile.Config{}), started: map[string]bool{},
	}
	w.makeReferenced()
	w.core = informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithTransform(w.trim))
	w.gateway = externalversions.NewSharedInformerFactoryWithOptions(gateway, 0, externalversions.WithTransform(w.trim))
	v1, g := w.core.Core().V1(), w.gateway.Gateway().V1()
	group := gatewayv1.GroupVersion.String()
	w.kinds = []kind{
		{"v1", "namespaces", v1.Namespaces().Informer},
		{"v1", "services", v1.Services().Informer},
		{"discovery.k8s.io/v1", "endpointslices", w.core.Discovery().V1().EndpointSlices().Informer},
		{"networking.k8s.io/v1", "ingressclasses", w.core.Networking().V1().IngressClasses().Informer},
		{"networking.k8s.io/v1", "ingresses", w.core.Networking().V1().Ingresses().Informer},
		{group, "gatewayclasses", g.GatewayClasses().Informer},
		{group, "gateways", g.Gateways().Informer},
		{group, "listenersets", g.ListenerSets().Informer},
		{group, "httproutes", g.HTTPRoutes().Informer},
		{group, "grpcroutes", g.GRPCRoutes().Informer},
		{group, "tlsroutes", g.TLSRoutes().Informer},
		{group, "tcproutes", g.TCPRoutes().Informer},
		{group, "udproutes", g.UDPRoutes().Informer},
		{group, "backendtlspolicies", g.BackendTLSPolicies().Informer},
		{group, "referencegrants", g.ReferenceGrants().Informer},
	}
	return w
}

// Run follows until ctx is done. It calls synced once all is known that the API
// serves.
func (w *Watch) Run(ctx context.Context, synced func()) {
	var once sync.Once
	for {
		known, err := w.follow(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("the API's kinds could not be read; trying again", "error", err)
		} else if known && ctx.Err() == nil {
			once.Do(func() { w.Wake(); synced() })
		}
		select {
		case <-ctx.Done():
			w.mu.Lock()
			w.end()
			w.mu.Unlock()
			w.threads.Wait()
			w.core.Shutdown()
			w.gateway.Shutdown()
			return
		case <-time.After(w.pause(err)):
		}
	}
}

func (w *Watch) pause(err error) time.Duration {
	if err != nil {
		return time.Second
	}
	return lookAgain
}

// follow starts what the API serves and isn't followed yet, and waits for it.
func (w *Watch) follow(ctx context.Context) (bool, error) {
	served := map[string]bool{}
	seen := map[string]bool{}
	for _, k := range w.kinds {
		if seen[k.version] || w.started[k.version+"/"+k.resource] {
			continue
		}
		seen[k.version] = true
		list, err := w.Core.Discovery().ServerResourcesForGroupVersion(k.version)
		if err != nil && !isMissing(err) {
			return false, fmt.Errorf("list kinds of %s: %w", k.version, err)
		}
		if err == nil {
			for _, r := range list.APIResources {
				served[k.version+"/"+r.Name] = true
			}
		}
	}
	var waiting []cache.InformerSynced
	for _, k := range w.kinds {
		name := k.version + "/" + k.resource
		if !served[name] || w.started[name] {
			continue
		}
		if w.lean && k.resource == "endpointslices" {
			waiting = append(waiting, w.followSlices(name))
			continue
		}
		informer := k.informer()
		handled, err := informer.AddEventHandler(w.handler())
		if err != nil {
			return false, fmt.Errorf("watch %s: %w", name, err)
		}
		w.mu.Lock()
		w.started[name] = true
		w.mu.Unlock()
		waiting = append(waiting, informer.HasSynced, handled.HasSynced) // known, and taken in: see happened
	}
	w.core.Start(ctx.Done())
	w.gateway.Start(ctx.Done())
	return cache.WaitForCacheSync(ctx.Done(), waiting...), nil
}

// isMissing reports whether the API has no such group: yet.
func isMissing(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

func (w *Watch) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.happened(nil, o) },
		UpdateFunc: func(old, o any) { w.happened(old, o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			w.happened(o, nil)
		},
	}
}

// SetNode says where endpoints are asked from.
func (w *Watch) SetNode(name, zone string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.choice.SetNode(compile.Node{Name: name, Zone: zone})
	w.changes.Everything = true
	w.signal()
}

// SetGone says which machines are gone, as their peers agree: see [compile.Compiler.SetGone].
func (w *Watch) SetGone(machines []compile.Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, service := range w.choice.SetGone(machines) {
		w.changes.Moved[service] = struct{}{}
	}
	w.signal()
}

// ReadyBackends lists who takes new connections of a Service's port.
func (w *Watch) ReadyBackends(service types.NamespacedName, port *corev1.ServicePort) []model.Backend {
	proto := model.TCP
	if port.Protocol == corev1.ProtocolUDP {
		proto = model.UDP
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.choice.ReadyBackends(service, port.Name, proto)
}

// EngineLabel is on Leases of engines.
const EngineLabel = "fairway.dev/gateway-engine"
