package web

import (
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/explain"
)

// store keeps the API's objects, so that what concerns one Service is found
// without looking at all of them.
type store struct {
	mu       sync.RWMutex
	services map[types.NamespacedName]*corev1.Service
	byAddr   map[netip.Addr]set[types.NamespacedName]
	slices   map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice // by Service, then name
	sliceOf  map[types.NamespacedName]types.NamespacedName                  // the Service of each slice
	pods     map[string]map[string]*corev1.Pod                              // by namespace, then name
	byLabel  map[label]set[types.NamespacedName]
	nodes    map[string]*corev1.Node
	policies map[string]map[string]*networkingv1.NetworkPolicy // by namespace, then name
	parts    map[string]*part
	// inForce is what agents have in force, while the API hasn't told Services or endpoints;
	// else nil. ofAgents are the Services that only they told of.
	inForce  *explain.Objects
	ofAgents set[types.NamespacedName]
}

type set[T comparable] map[T]struct{}

// label is one label of the pods of a namespace.
type label struct{ namespace, key, value string }

// part is how it stands with the objects of one kind.
type part struct {
	synced bool
	err    error // of the latest request; nil if it went well
}

// resources are the kinds that are watched, as RBAC names them. Without the
// first two there is nothing to show.
var resources = []string{"services", "endpointslices", "nodes", "pods", "networkpolicies"}

func newStore() *store {
	s := &store{
		services: map[types.NamespacedName]*corev1.Service{}, byAddr: map[netip.Addr]set[types.NamespacedName]{},
		slices:  map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice{},
		sliceOf: map[types.NamespacedName]types.NamespacedName{},
		pods:    map[string]map[string]*corev1.Pod{}, byLabel: map[label]set[types.NamespacedName]{},
		nodes: map[string]*corev1.Node{}, policies: map[string]map[string]*networkingv1.NetworkPolicy{}, parts: map[string]*part{},
		ofAgents: set[types.NamespacedName]{},
	}
	for _, r := range resources {
		s.parts[r] = &part{}
	}
	return s
}

// setService keeps a Service, or forgets one that is nil now, and returns what it
// was before.
func (s *store) setService(name types.NamespacedName, now *corev1.Service) (before *corev1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.services[name]
	if before != nil {
		for _, a := range explain.AddressesOf(before) {
			drop(s.byAddr, a, name)
		}
	}
	if now == nil {
		delete(s.services, name)
		return before
	}
	s.services[name] = now
	delete(s.ofAgents, name)
	for _, a := range explain.AddressesOf(now) {
		put(s.byAddr, a, name)
	}
	return before
}

// setSlice keeps or forgets an EndpointSlice, and says which Service it is of, or
// was.
func (s *store) setSlice(name types.NamespacedName, now *discoveryv1.EndpointSlice) (before *discoveryv1.EndpointSlice, service types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	service = s.sliceOf[name]
	if before = s.slices[service][name.Name]; before != nil {
		delete(s.slices[service], name.Name)
		if len(s.slices[service]) == 0 {
			delete(s.slices, service)
		}
	}
	if now == nil {
		delete(s.sliceOf, name)
		return before, service
	}
	service = types.NamespacedName{Namespace: now.Namespace, Name: now.Labels[discoveryv1.LabelServiceName]}
	s.sliceOf[name] = service
	if s.slices[service] == nil {
		s.slices[service] = map[string]*discoveryv1.EndpointSlice{}
	}
	s.slices[service][name.Name] = now
	return before, service
}

func (s *store) setPod(name types.NamespacedName, now *corev1.Pod) (before *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before = s.pods[name.Namespace][name.Name]; before != nil {
		for k, v := range before.Labels {
			drop(s.byLabel, label{name.Namespace, k, v}, name)
		}
	}
	keep(s.pods, name, now)
	if now != nil {
		for k, v := range now.Labels {
			put(s.byLabel, label{name.Namespace, k, v}, name)
		}
	}
	return before
}

func (s *store) setNode(name string, now *corev1.Node) (before *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.nodes[name]
	if now == nil {
		delete(s.nodes, name)
	} else {
		s.nodes[name] = now
	}
	return before
}

func (s *store) setPolicy(name types.NamespacedName, now *networkingv1.NetworkPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep(s.policies, name, now)
}

// setPart notes how a request for a kind went, or that all of it is here.
func (s *store) setPart(resource string, note func(*part)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note(s.parts[resource])
}

// settled reports whether Services and their endpoints were read, and everything
// else was, or can't be.
func (s *store) settled() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.inForce != nil {
		return true
	}
	for resource, p := range s.parts {
		needed := resource == "services" || resource == "endpointslices"
		if !p.synced && (needed || p.err == nil) {
			return false
		}
	}
	return true
}

// keep keeps an object by namespace and name, or forgets it if it is nil.
func keep[T any](all map[string]map[string]*T, name types.NamespacedName, now *T) {
	switch of := all[name.Namespace]; {
	case now == nil:
		delete(of, name.Name)
	case of == nil:
		all[name.Namespace] = map[string]*T{name.Name: now}
	default:
		of[name.Name] = now
	}
}

func put[K, V comparable](sets map[K]set[V], key K, value V) {
	if sets[key] == nil {
		sets[key] = set[V]{}
	}
	sets[key][value] = struct{}{}
}

func drop[K, V comparable](sets map[K]set[V], key K, value V) {
	delete(sets[key], value)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}
