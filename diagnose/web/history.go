package web

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/explain"
)

// Change is what the API told of one Service at one time.
type Change struct {
	Time    time.Time `json:"time"` // when this page heard of it
	Service string    `json:"service"`
	What    []string  `json:"what"`
	// Nodes are those that have told how long they took.
	Nodes []Propagation `json:"nodes,omitempty"`
}

// Propagation is how long a change took to be in force on a node.
type Propagation struct {
	Node    string    `json:"node"`
	InForce time.Time `json:"inForce"`
	Seconds float64   `json:"seconds"` // since it was made, or else since the agent heard of it
	Since   string    `json:"since"`   // "made" or "heard"
}

// mostChanges is how many changes are remembered.
const mostChanges = 1000

// history remembers the latest changes.
type history struct {
	told func()

	mu      sync.Mutex
	changes []Change // the latest last
	total   int      // that there have been
}

func (h *history) add(service types.NamespacedName, what ...string) {
	if len(what) == 0 || service.Name == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total++
	if len(h.changes) == mostChanges {
		h.changes = slices.Delete(h.changes, 0, mostChanges/10)
	}
	h.changes = append(h.changes, Change{Time: time.Now(), Service: service.String(), What: what})
	h.told()
}

// service notes how a Service changed.
func (h *history) service(name types.NamespacedName, before, now *corev1.Service) {
	switch {
	case before == nil && now == nil:
		return
	case before == nil:
		h.add(name, "the Service is new")
		return
	case now == nil:
		h.add(name, "the Service is gone")
		return
	}
	var what []string
	if !reflect.DeepEqual(before.Spec.Ports, now.Spec.Ports) {
		what = append(what, "ports")
	}
	if a, b := explain.SelectorText(before.Spec.Selector), explain.SelectorText(now.Spec.Selector); a != b {
		what = append(what, fmt.Sprintf("selector %s, was %s", cmp.Or(b, "none"), cmp.Or(a, "none")))
	}
	if before.Spec.Type != now.Spec.Type {
		what = append(what, fmt.Sprintf("type %s, was %s", now.Spec.Type, before.Spec.Type))
	}
	a, b := fmt.Sprint(explain.AddressesOf(before)), fmt.Sprint(explain.AddressesOf(now))
	if a != b {
		what = append(what, "addresses "+b)
	}
	if len(what) == 0 && !reflect.DeepEqual(before.Spec, now.Spec) {
		what = append(what, "settings")
	}
	h.add(name, what...)
}

// mostSaid is how many endpoints a change names.
const mostSaid = 4

// slice notes how the endpoints of a Service changed.
func (h *history) slice(service types.NamespacedName, before, now *discoveryv1.EndpointSlice) {
	old, fresh := conditions(before), conditions(now)
	var what []string
	for _, address := range slices.Sorted(maps.Keys(fresh)) {
		was, there := old[address]
		switch is := fresh[address]; {
		case !there:
			what = append(what, fmt.Sprintf("endpoint %s is new, %s", address, is))
		case was != is:
			what = append(what, fmt.Sprintf("endpoint %s is %s", address, is))
		}
	}
	for _, address := range slices.Sorted(maps.Keys(old)) {
		if _, there := fresh[address]; !there {
			what = append(what, fmt.Sprintf("endpoint %s is gone", address))
		}
	}
	if len(what) > mostSaid {
		what = append(what[:mostSaid:mostSaid], fmt.Sprintf("and %d more", len(what)-mostSaid))
	}
	h.add(service, what...)
}

// conditions are what a slice says of each of its addresses, in words.
func conditions(s *discoveryv1.EndpointSlice) map[string]string {
	list := map[string]string{}
	if s == nil {
		return list
	}
	is := func(b *bool, otherwise bool) bool { return b == nil && otherwise || b != nil && *b }
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		text := "ready"
		switch {
		case is(e.Conditions.Terminating, false):
			text = "terminating"
		case !is(e.Conditions.Ready, true):
			text = "not ready"
		}
		for _, a := range e.Addresses {
			list[a] = text
		}
	}
	return list
}

// all are the changes of Services whose names have a text in them, the latest
// first, and of one Service if it is named.
func (h *history) find(wanted func(Change) bool, of propagation) []Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []Change{}
	for _, c := range slices.Backward(h.changes) {
		if wanted(c) {
			c.Nodes = of.times(c)
			list = append(list, c)
		}
	}
	return list
}

// mostOfService is how many changes the page of a Service has.
const mostOfService = 20

func (h *history) of(name types.NamespacedName, times propagation) []Change {
	list := h.find(func(c Change) bool { return c.Service == name.String() }, times)
	return list[:min(len(list), mostOfService)]
}

// named finds changes by a search.
func named(query string) func(Change) bool {
	words := strings.Fields(strings.ToLower(query))
	return func(c Change) bool {
		text := strings.ToLower(c.Service + " " + strings.Join(c.What, " "))
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}
}
