package cluster

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// label is one label of the objects of one namespace.
type label struct{ namespace, key, value string }

// selection answers which Pods a Service selects and which Services select a
// Pod, without looking at any other Pod or Service: Pods are filed under each
// of their labels, Services under the one of their selector's that the fewest
// other Services are filed under.
type selection struct {
	mu       sync.RWMutex
	pods     map[label]map[string]*corev1.Pod
	nodes    map[string]map[types.NamespacedName]*corev1.Pod
	services map[label]map[string]map[string]string
	filed    map[types.NamespacedName]label
}

func newSelection() *selection {
	return &selection{
		pods:     map[label]map[string]*corev1.Pod{},
		nodes:    map[string]map[types.NamespacedName]*corev1.Pod{},
		services: map[label]map[string]map[string]string{},
		filed:    map[types.NamespacedName]label{},
	}
}

// changePod replaces old by new, either of which may be nil, and returns the
// Services that this may concern.
func (s *selection) changePod(old, new *corev1.Pod) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old != nil {
		s.removePod(old)
	}
	if new != nil {
		s.insertPod(new)
	}
	switch {
	case old == nil:
		return s.servicesFor(new)
	case new == nil:
		return s.servicesFor(old)
	case !endpointChanged(old, new):
		return nil
	}
	concerned := s.servicesFor(new)
	for _, service := range s.servicesFor(old) {
		if !slices.Contains(concerned, service) {
			concerned = append(concerned, service)
		}
	}
	return concerned
}

func (s *selection) removePod(pod *corev1.Pod) {
	for k, v := range pod.Labels {
		remove(s.pods, label{pod.Namespace, k, v}, pod.Name)
	}
	remove(s.nodes, pod.Spec.NodeName, key(pod))
}

func (s *selection) insertPod(pod *corev1.Pod) {
	for k, v := range pod.Labels {
		insert(s.pods, label{pod.Namespace, k, v}, pod.Name, pod)
	}
	insert(s.nodes, pod.Spec.NodeName, key(pod), pod)
}

// changeService files service under its present selector; gone says it is deleted.
func (s *selection) changeService(service *corev1.Service, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.filed[key(service)]; ok {
		remove(s.services, at, service.Name)
		delete(s.filed, key(service))
	}
	if gone || len(service.Spec.Selector) == 0 {
		return
	}
	var best label
	fewest := -1
	for k, v := range service.Spec.Selector {
		at := label{service.Namespace, k, v}
		if n := len(s.services[at]); fewest < 0 || n < fewest {
			best, fewest = at, n
		}
	}
	insert(s.services, best, service.Name, service.Spec.Selector)
	s.filed[key(service)] = best
}

// servicesFor needs the lock held.
func (s *selection) servicesFor(pod *corev1.Pod) []types.NamespacedName {
	var found []types.NamespacedName
	for k, v := range pod.Labels {
		for name, selector := range s.services[label{pod.Namespace, k, v}] {
			if matches(selector, pod.Labels) {
				found = append(found, types.NamespacedName{Namespace: pod.Namespace, Name: name})
			}
		}
	}
	return found
}

// podsFor returns the Pods of the namespace that selector selects; none if it is empty.
func (s *selection) podsFor(namespace string, selector map[string]string) []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var candidates map[string]*corev1.Pod
	first := true
	for k, v := range selector {
		if pods := s.pods[label{namespace, k, v}]; first || len(pods) < len(candidates) {
			candidates, first = pods, false
		}
	}
	found := make([]*corev1.Pod, 0, len(candidates))
	for _, pod := range candidates {
		if matches(selector, pod.Labels) {
			found = append(found, pod)
		}
	}
	return found
}

// servicesOn returns the Services that select a Pod on the node, some twice.
func (s *selection) servicesOn(node string) []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []types.NamespacedName
	for _, pod := range s.nodes[node] {
		found = append(found, s.servicesFor(pod)...)
	}
	return found
}

// endpointChanged reports whether an endpoint made of the Pod, or the set of
// Services that select it, may differ between old and new.
func endpointChanged(old, new *corev1.Pod) bool {
	return old.UID != new.UID ||
		!matches(old.Labels, new.Labels) || !matches(new.Labels, old.Labels) ||
		old.Spec.NodeName != new.Spec.NodeName ||
		old.Spec.Hostname != new.Spec.Hostname ||
		old.Spec.Subdomain != new.Spec.Subdomain ||
		(old.DeletionTimestamp == nil) != (new.DeletionTimestamp == nil) ||
		endpointsliceutil.IsPodReady(old) != endpointsliceutil.IsPodReady(new) ||
		endpointsliceutil.ShouldPodBeInEndpoints(old, true) != endpointsliceutil.ShouldPodBeInEndpoints(new, true) ||
		old.Status.PodIP != new.Status.PodIP ||
		!slices.Equal(old.Status.PodIPs, new.Status.PodIPs)
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func insert[K, L comparable, V any](in map[K]map[L]V, at K, name L, value V) {
	if in[at] == nil {
		in[at] = map[L]V{}
	}
	in[at][name] = value
}

func remove[K, L comparable, V any](from map[K]map[L]V, at K, name L) {
	delete(from[at], name)
	if len(from[at]) == 0 {
		delete(from, at)
	}
}
