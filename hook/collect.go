package hook

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/kube"
)

// Selection says which Services a hook is about.
type Selection struct {
	// Class is that of Services of type LoadBalancer whose balancer the hook is:
	// it may write their status. "" takes Services of any class and type.
	Class string
	// Labels must be those of the Service; nil takes all.
	Labels labels.Selector
	// LoadBalancers takes Services of type LoadBalancer only.
	LoadBalancers bool
}

func (s Selection) takes(service *corev1.Service) bool {
	if service.DeletionTimestamp != nil || service.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	if s.Labels != nil && !s.Labels.Matches(labels.Set(service.Labels)) {
		return false
	}
	if (s.LoadBalancers || s.Class != "") && service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	class := service.Spec.LoadBalancerClass
	return s.Class == "" || class != nil && *class == s.Class
}

// collector keeps the state up to date from watches. The cost of a change is that
// of the one Service.
type collector struct {
	selection Selection
	changed   func()

	mu       sync.Mutex
	missing  map[string]bool
	services map[types.NamespacedName]*corev1.Service
	slices   map[types.NamespacedName]*discoveryv1.EndpointSlice
	of       map[types.NamespacedName]map[types.NamespacedName]bool // slices by Service
	state    snapshot
}

func newCollector(selection Selection, changed func()) *collector {
	return &collector{
		selection: selection, changed: changed, missing: map[string]bool{"services": true, "endpointslices": true, "nodes": true},
		services: map[types.NamespacedName]*corev1.Service{}, slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{},
		of:    map[types.NamespacedName]map[types.NamespacedName]bool{},
		state: snapshot{services: map[string]*Service{}, nodes: map[string]*Node{}},
	}
}

// run watches until ctx is done.
func (c *collector) run(ctx context.Context, client kubernetes.Interface) {
	var watching sync.WaitGroup
	watching.Go(func() {
		kube.Watch(ctx, kube.Source{Client: client.CoreV1().RESTClient(), Resource: "services"}, kube.Sink[*corev1.Service]{
			Set: c.setService, Delete: c.deleteService, Synced: func() { c.complete("services") },
		})
	})
	watching.Go(func() {
		kube.Watch(ctx, kube.Source{Client: client.DiscoveryV1().RESTClient(), Resource: "endpointslices"}, kube.Sink[*discoveryv1.EndpointSlice]{
			Set: c.setSlice, Delete: c.deleteSlice, Synced: func() { c.complete("endpointslices") },
		})
	})
	watching.Go(func() {
		kube.Watch(ctx, kube.Source{Client: client.CoreV1().RESTClient(), Resource: "nodes"}, kube.Sink[*corev1.Node]{
			Set: c.setNode, Delete: c.deleteNode, Synced: func() { c.complete("nodes") },
		})
	})
	watching.Wait()
}

func (c *collector) complete(part string) {
	c.mu.Lock()
	delete(c.missing, part)
	c.mu.Unlock()
	c.changed()
}

// current is the state as it is now; false as long as parts are missing.
func (c *collector) current() (snapshot, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return snapshot{services: maps.Clone(c.state.services), nodes: maps.Clone(c.state.nodes)}, len(c.missing) == 0
}

func (c *collector) setService(s *corev1.Service) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	if !c.selection.takes(s) {
		c.deleteService(key)
		return
	}
	c.mu.Lock()
	c.services[key] = s.DeepCopy()
	c.build(key)
	c.mu.Unlock()
	c.changed()
}

func (c *collector) deleteService(key types.NamespacedName) {
	c.mu.Lock()
	_, known := c.services[key]
	delete(c.services, key)
	delete(c.state.services, key.String())
	c.mu.Unlock()
	if known {
		c.changed()
	}
}

func (c *collector) setSlice(s *discoveryv1.EndpointSlice) {
	id := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	c.mu.Lock()
	concerned := c.forget(id)
	if key.Name != "" {
		c.slices[id] = s.DeepCopy()
		if c.of[key] == nil {
			c.of[key] = map[types.NamespacedName]bool{}
		}
		c.of[key][id] = true
	}
	c.rebuild(concerned, key)
}

func (c *collector) deleteSlice(id types.NamespacedName) {
	c.mu.Lock()
	c.rebuild(c.forget(id), types.NamespacedName{})
}

// forget removes a slice, and says which Service it was of.
func (c *collector) forget(id types.NamespacedName) (key types.NamespacedName) {
	s := c.slices[id]
	if s == nil {
		return key
	}
	key = types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	delete(c.slices, id)
	delete(c.of[key], id)
	if len(c.of[key]) == 0 {
		delete(c.of, key)
	}
	return key
}

// rebuild builds the Services that a slice's change concerns, and releases the lock.
func (c *collector) rebuild(concerned ...types.NamespacedName) {
	some := false
	for _, key := range concerned {
		if c.services[key] != nil {
			c.build(key)
			some = true
		}
	}
	c.mu.Unlock()
	if some {
		c.changed()
	}
}

// build makes the state of a Service. The caller holds the lock.
func (c *collector) build(key types.NamespacedName) {
	list := make([]*discoveryv1.EndpointSlice, 0, len(c.of[key]))
	for id := range c.of[key] {
		list = append(list, c.slices[id])
	}
	slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	c.state.services[key.String()] = buildService(c.services[key], list, c.selection.Class != "")
}

func (c *collector) setNode(n *corev1.Node) {
	c.mu.Lock()
	c.state.nodes[n.Name] = buildNode(n)
	c.mu.Unlock()
	c.changed()
}

func (c *collector) deleteNode(key types.NamespacedName) {
	c.mu.Lock()
	delete(c.state.nodes, key.Name)
	c.mu.Unlock()
	c.changed()
}

// full is a snapshot as a State, Services and Nodes in the order of their names.
func (s snapshot) full() *State {
	state := &State{Full: true, Services: slices.Collect(maps.Values(s.services)), Nodes: slices.Collect(maps.Values(s.nodes))}
	slices.SortFunc(state.Services, func(a, b *Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(state.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	if state.Services == nil {
		state.Services = []*Service{}
	}
	if state.Nodes == nil {
		state.Nodes = []*Node{}
	}
	return state
}
