// Package cluster is what the controllers keep in memory of the cluster:
// informers shared between them, trimmed, and the index that tells which Pods
// belong to which Services.
package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// byService indexes EndpointSlices by the Service named in their label.
const byService = "service"

// Cache gives the controllers their view of the cluster. Handlers are added
// first, then Start fills it.
type Cache struct {
	Client    kubernetes.Interface
	Services  corelisters.ServiceLister
	Endpoints corelisters.EndpointsLister
	Nodes     corelisters.NodeLister
	// Namespaces are kept only where OnNamespace is used.
	Namespaces corelisters.NamespaceLister

	factory       informers.SharedInformerFactory
	slices        cache.SharedIndexInformer
	selection     *selection
	selectionsFor []func(types.NamespacedName)
	synced        []cache.InformerSynced
}

// New returns an empty cache. Of all EndpointSlices it will hold those that
// one of managers wrote (label endpointslice.kubernetes.io/managed-by).
func New(client kubernetes.Interface, managers ...string) (*Cache, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(Trim))
	c := &Cache{
		Client:     client,
		Services:   factory.Core().V1().Services().Lister(),
		Endpoints:  factory.Core().V1().Endpoints().Lister(),
		Nodes:      factory.Core().V1().Nodes().Lister(),
		Namespaces: factory.Core().V1().Namespaces().Lister(),
		factory:    factory,
		slices:     managedSlices(factory, managers),
		selection:  newSelection(),
	}
	if err := c.handle(factory.Core().V1().Services().Informer(), Change[corev1.Service](c.serviceChanged)); err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	if err := c.handle(factory.Core().V1().Pods().Informer(), Change[corev1.Pod](c.podChanged)); err != nil {
		return nil, fmt.Errorf("watch Pods: %w", err)
	}
	return c, nil
}

// NewOfServices returns an empty cache for controllers that look at Services,
// Nodes and Namespaces only: it has no Pods, Endpoints and EndpointSlices.
func NewOfServices(client kubernetes.Interface) *Cache {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(Trim))
	return &Cache{
		Client:     client,
		Services:   factory.Core().V1().Services().Lister(),
		Nodes:      factory.Core().V1().Nodes().Lister(),
		Namespaces: factory.Core().V1().Namespaces().Lister(),
		factory:    factory,
	}
}

// OnSelection calls f for each Service that changed or of whose Pods one
// changed, as far as endpoints can tell.
func (c *Cache) OnSelection(f func(service types.NamespacedName)) {
	c.selectionsFor = append(c.selectionsFor, f)
}

// OnService is OnEndpoints for Services.
func (c *Cache) OnService(f func(old, new *corev1.Service)) error {
	return c.handle(c.factory.Core().V1().Services().Informer(), Change[corev1.Service](f))
}

// OnEndpoints calls f for each change of an Endpoints object; old is nil for a
// new one, new for a deleted one.
func (c *Cache) OnEndpoints(f func(old, new *corev1.Endpoints)) error {
	return c.handle(c.factory.Core().V1().Endpoints().Informer(), Change[corev1.Endpoints](f))
}

// OnNode is OnEndpoints for Nodes.
func (c *Cache) OnNode(f func(old, new *corev1.Node)) error {
	return c.handle(c.factory.Core().V1().Nodes().Informer(), Change[corev1.Node](f))
}

// OnNamespace is OnEndpoints for Namespaces.
func (c *Cache) OnNamespace(f func(old, new *corev1.Namespace)) error {
	return c.handle(c.factory.Core().V1().Namespaces().Informer(), Change[corev1.Namespace](f))
}

// Start fills the cache and returns when it is complete, or ctx done.
func (c *Cache) Start(ctx context.Context) error {
	c.factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("fill cache: %w", context.Cause(ctx))
	}
	return nil
}

// Stop waits until the watches have ended after Start's context did.
func (c *Cache) Stop() { c.factory.Shutdown() }

// PodsOf returns the Pods that service selects, in no order.
func (c *Cache) PodsOf(service *corev1.Service) []*corev1.Pod {
	return c.selection.podsFor(service.Namespace, service.Spec.Selector)
}

// PodLabels returns the labels of all Pods of a namespace. They belong to the cache.
func (c *Cache) PodLabels(namespace string) ([]map[string]string, error) {
	pods, err := c.factory.Core().V1().Pods().Lister().Pods(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Pods of namespace %s: %w", namespace, err)
	}
	list := make([]map[string]string, len(pods))
	for i, p := range pods {
		list[i] = p.Labels
	}
	return list, nil
}

// ServicesOn returns the Services that select a Pod on the node, some twice.
func (c *Cache) ServicesOn(node string) []types.NamespacedName {
	return c.selection.servicesOn(node)
}

func (c *Cache) serviceChanged(old, new *corev1.Service) {
	service := new
	if new == nil {
		service = old
	}
	c.selection.changeService(service, new == nil)
	c.selected(key(service))
}

func (c *Cache) podChanged(old, new *corev1.Pod) {
	for _, service := range c.selection.changePod(old, new) {
		c.selected(service)
	}
}

func (c *Cache) selected(service types.NamespacedName) {
	for _, f := range c.selectionsFor {
		f(service)
	}
}

func (c *Cache) handle(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	c.synced = append(c.synced, registration.HasSynced)
	return nil
}

func key(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
