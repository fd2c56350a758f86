package hook

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// What happened to something.
const (
	added   = "added"
	changed = "changed"
	removed = "removed"
)

// snapshot is a state by names. Its parts are never changed, only replaced.
type snapshot struct {
	services map[string]*Service
	nodes    map[string]*Node
}

// changes lists what differs between two snapshots, in the order of names.
func changes(old, new snapshot) []Change {
	var list []Change
	for _, key := range keys(old.services, new.services) {
		list = append(list, serviceChanges(key, old.services[key], new.services[key])...)
	}
	for _, name := range keys(old.nodes, new.nodes) {
		was, is := old.nodes[name], new.nodes[name]
		if what := difference(was != nil, is != nil, was == is || reflect.DeepEqual(was, is)); what != "" {
			list = append(list, Change{What: what, Kind: "node", Node: name})
		}
	}
	return list
}

// keys are the names in either map, sorted.
func keys[V any](a, b map[string]V) []string {
	list := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(list)
	return slices.Compact(list)
}

// difference names one; "" is none.
func difference(was, is, equal bool) string {
	switch {
	case !was && is:
		return added
	case was && !is:
		return removed
	case !equal:
		return changed
	}
	return ""
}

// serviceChanges lists the changes of one Service: of itself, and then of each
// endpoint if it stays.
func serviceChanges(key string, was, is *Service) []Change {
	if was == is {
		return nil
	}
	var list []Change
	if what := difference(was != nil, is != nil, was != nil && is != nil && reflect.DeepEqual(without(was), without(is))); what != "" {
		list = append(list, Change{What: what, Kind: "service", Service: key})
	}
	if was == nil || is == nil {
		return list
	}
	old := map[string]*Port{}
	for _, p := range was.Ports {
		old[p.id()] = p
	}
	for _, p := range is.Ports {
		list = append(list, endpointChanges(key, old[p.id()], p)...)
	}
	return list
}

func (p *Port) id() string { return cmp.Or(p.Name, strconv.Itoa(int(p.Port))) }

// without is a Service without its endpoints.
func without(s *Service) *Service {
	c := *s
	c.Ports = nil
	for _, p := range s.Ports {
		q := *p
		q.Endpoints = nil
		c.Ports = append(c.Ports, &q)
	}
	return &c
}

func endpointChanges(key string, was, is *Port) []Change {
	old, now := map[string]*Endpoint{}, map[string]*Endpoint{}
	if was != nil {
		for _, e := range was.Endpoints {
			old[e.id()] = e
		}
	}
	for _, e := range is.Endpoints {
		now[e.id()] = e
	}
	var list []Change
	for _, id := range keys(old, now) {
		a, b := old[id], now[id]
		if what := difference(a != nil, b != nil, a != nil && b != nil && *a == *b); what != "" {
			list = append(list, Change{What: what, Kind: "endpoint", Service: key, Port: is.id(), Endpoint: cmp.Or(b, a)})
		}
	}
	return list
}

func (e *Endpoint) id() string { return e.Address + " " + strconv.Itoa(int(e.Port)) }
