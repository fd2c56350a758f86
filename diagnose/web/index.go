package web

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/explain"
)

// about are the objects that concern a Service: its own, Services with one of its
// addresses, its pods and endpoints, and every node. The Service is nil if there
// is none; then the Services of its namespace are there, to suggest one.
func (s *store) about(name types.NamespacedName) (*explain.Objects, *corev1.Service) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := &explain.Objects{Nodes: byName(s.nodes), NoPods: s.missing("pods"), NoPolicies: s.missing("networkpolicies")}
	if s.inForce != nil {
		*o = *s.inForce
		o.Services = nil
	}
	service := s.services[name]
	if service == nil {
		for other, of := range s.services {
			if other.Namespace == name.Namespace || other.Name == name.Name {
				o.Services = append(o.Services, of)
			}
		}
		return o, nil
	}
	others := set[types.NamespacedName]{}
	for _, a := range explain.AddressesOf(service) {
		maps.Copy(others, s.byAddr[a])
	}
	others[name] = struct{}{}
	for _, other := range sortedNames(others) {
		o.Services = append(o.Services, s.services[other])
		o.Slices = append(o.Slices, byName(s.slices[other])...)
	}
	o.Pods = s.podsOf(service)
	o.Policies = byName(s.policies[name.Namespace])
	return o, service
}

// podsOf are the pods that a Service selects, and those that are its endpoints.
// Where it selects none, all of the namespace: one of them may have been meant.
func (s *store) podsOf(service *corev1.Service) []*corev1.Pod {
	found := set[types.NamespacedName]{}
	for name := range s.selected(service) {
		found[name] = struct{}{}
	}
	if len(found) == 0 && len(service.Spec.Selector) > 0 {
		return byName(s.pods[service.Namespace])
	}
	for _, slice := range s.slices[types.NamespacedName{Namespace: service.Namespace, Name: service.Name}] {
		for i := range slice.Endpoints {
			if ref := slice.Endpoints[i].TargetRef; ref != nil && ref.Kind == "Pod" {
				found[types.NamespacedName{Namespace: service.Namespace, Name: ref.Name}] = struct{}{}
			}
		}
	}
	var list []*corev1.Pod
	for _, name := range sortedNames(found) {
		if p := s.pods[name.Namespace][name.Name]; p != nil {
			list = append(list, p)
		}
	}
	return list
}

// selected are the pods that the selector matches: those of the rarest of its
// labels are looked at.
func (s *store) selected(service *corev1.Service) set[types.NamespacedName] {
	var rarest set[types.NamespacedName]
	first := true
	for k, v := range service.Spec.Selector {
		of := s.byLabel[label{service.Namespace, k, v}]
		if first || len(of) < len(rarest) {
			rarest, first = of, false
		}
	}
	found := set[types.NamespacedName]{}
	for name := range rarest {
		if selects(service, s.pods[name.Namespace][name.Name]) {
			found[name] = struct{}{}
		}
	}
	return found
}

// selects reports whether a Service has a selector, and it matches a pod.
func selects(service *corev1.Service, p *corev1.Pod) bool {
	if p == nil || len(service.Spec.Selector) == 0 {
		return false
	}
	for k, v := range service.Spec.Selector {
		if have, there := p.Labels[k]; !there || have != v {
			return false
		}
	}
	return true
}

// withPod adds the pod that asks.
func (s *store) withPod(o *explain.Objects, from explain.Source) {
	if from.Kind != "pod" || o.Pod(from.Namespace, from.Name) != nil {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.pods[from.Namespace][from.Name]; p != nil {
		o.Pods = append(o.Pods, p)
	}
}

// names are the names of all Services.
func (s *store) names() []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.services))
}

// namesIn are the names of the Services of a namespace that select one of two
// states of a pod.
func (s *store) selecting(pods ...*corev1.Pod) []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []types.NamespacedName
	for name, service := range s.services {
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p != nil && p.Namespace == name.Namespace && selects(service, p) }) {
			list = append(list, name)
		}
	}
	return list
}

// sharing are the names of other Services with one of a Service's addresses.
func (s *store) sharing(service *corev1.Service) []types.NamespacedName {
	if service == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []types.NamespacedName
	for _, a := range explain.AddressesOf(service) {
		for name := range s.byAddr[a] {
			list = append(list, name)
		}
	}
	return list
}

// slicesOf are the EndpointSlices of a Service.
func (s *store) slicesOf(name types.NamespacedName) []*discoveryv1.EndpointSlice {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return byName(s.slices[name])
}

// missing says why the objects of a kind aren't here; "" if they are. The caller
// holds the lock.
func (s *store) missing(resource string) string {
	switch p := s.parts[resource]; {
	case p.synced:
		return ""
	case p.err != nil:
		return p.err.Error()
	}
	return "they are not read yet"
}

// byName are the objects of a map in the order of their names.
func byName[T any](all map[string]*T) []*T {
	list := make([]*T, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

func sortedNames(names set[types.NamespacedName]) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(names), compareNames)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
