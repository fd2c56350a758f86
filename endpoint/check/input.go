package check

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The parts of the input that must be complete before anything is done.
const (
	partServices = "services"
	partSlices   = "endpointslices"
	partNodes    = "nodes"
	partReports  = "reports"
)

// input is what is kept of the API's objects: Services that ask for checks,
// EndpointSlices with endpoints that have no Pod, Nodes, and this node's reports.
type input struct {
	missing  map[string]bool
	services map[types.NamespacedName]service
	slices   map[types.NamespacedName]slice
	of       map[types.NamespacedName]map[types.NamespacedName]bool // slices by Service
	nodes    map[string]Node
	index    *Nodes
	reports  map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice // by Service and name
}

// service is what is kept of a Service that asks for checks.
type service struct {
	wish     Wish
	problems []error
}

// slice is what is kept of an EndpointSlice.
type slice struct {
	service   types.NamespacedName
	ports     []discoveryv1.EndpointPort
	endpoints []endpoint
	problem   error // of the first endpoint that can't be checked
}

type endpoint struct {
	addr netip.Addr
	node *string
}

func newInput() input {
	return input{
		missing:  map[string]bool{partServices: true, partSlices: true, partNodes: true, partReports: true},
		services: map[types.NamespacedName]service{}, slices: map[types.NamespacedName]slice{},
		of:    map[types.NamespacedName]map[types.NamespacedName]bool{},
		nodes: map[string]Node{}, index: NewNodes(nil),
		reports: map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice{},
	}
}

// complete notes that a part is known in full. All Services are to be looked at
// when it was the last.
func (i *input) complete(part string) []types.NamespacedName {
	if !i.missing[part] {
		return nil
	}
	delete(i.missing, part)
	if len(i.missing) > 0 {
		return nil
	}
	return i.all()
}

// all are the Services that ask for checks or that there are reports about.
func (i *input) all() []types.NamespacedName {
	list := slices.Collect(maps.Keys(i.services))
	for key := range i.reports {
		if _, asks := i.services[key]; !asks {
			list = append(list, key)
		}
	}
	return list
}

func (i *input) setService(key types.NamespacedName, s *corev1.Service) []types.NamespacedName {
	if !Asks(s.Annotations) {
		return i.deleteService(key)
	}
	wish, problems := ReadWish(s.Annotations)
	i.services[key] = service{wish: wish, problems: problems}
	return []types.NamespacedName{key}
}

func (i *input) deleteService(key types.NamespacedName) []types.NamespacedName {
	if _, known := i.services[key]; !known {
		return nil
	}
	delete(i.services, key)
	return []types.NamespacedName{key}
}

func (i *input) setSlice(s *discoveryv1.EndpointSlice) []types.NamespacedName {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	concerned := i.deleteSlice(key)
	of, _ := ServiceOf(s)
	if !Concerns(s) {
		return concerned
	}
	kept := slice{service: of, ports: s.Ports}
	for n := range s.Endpoints {
		e := &s.Endpoints[n]
		if !Checkable(e) {
			continue
		}
		addr, err := AddressOf(e)
		if err != nil {
			if kept.problem == nil {
				kept.problem = err
			}
			continue
		}
		kept.endpoints = append(kept.endpoints, endpoint{addr, e.NodeName})
	}
	i.slices[key] = kept
	if i.of[of] == nil {
		i.of[of] = map[types.NamespacedName]bool{}
	}
	i.of[of][key] = true
	return append(concerned, i.asking(of)...)
}

func (i *input) deleteSlice(key types.NamespacedName) []types.NamespacedName {
	s, known := i.slices[key]
	if !known {
		return nil
	}
	delete(i.slices, key)
	if delete(i.of[s.service], key); len(i.of[s.service]) == 0 {
		delete(i.of, s.service)
	}
	return i.asking(s.service)
}

// asking is the Service, if it asks for checks.
func (i *input) asking(key types.NamespacedName) []types.NamespacedName {
	if _, asks := i.services[key]; !asks {
		return nil
	}
	return []types.NamespacedName{key}
}

func (i *input) setNode(n Node) []types.NamespacedName {
	if known, is := i.nodes[n.Name]; is && known.Equal(n) {
		return nil
	}
	i.nodes[n.Name] = n
	return i.nodesChanged()
}

func (i *input) deleteNode(name string) []types.NamespacedName {
	delete(i.nodes, name)
	return i.nodesChanged()
}

func (i *input) nodesChanged() []types.NamespacedName {
	i.index = NewNodes(slices.Collect(maps.Values(i.nodes)))
	return i.all()
}

func (i *input) setReport(s *discoveryv1.EndpointSlice) []types.NamespacedName {
	of, _, is := IsReport(s)
	if !is {
		return nil
	}
	if i.reports[of] == nil {
		i.reports[of] = map[string]*discoveryv1.EndpointSlice{}
	}
	known := i.reports[of][s.Name]
	i.reports[of][s.Name] = s
	if known != nil && known.ResourceVersion == s.ResourceVersion {
		return nil
	}
	return []types.NamespacedName{of}
}

func (i *input) deleteReport(key types.NamespacedName) []types.NamespacedName {
	for of, reports := range i.reports {
		if _, is := reports[key.Name]; is && of.Namespace == key.Namespace {
			if delete(reports, key.Name); len(reports) == 0 {
				delete(i.reports, of)
			}
			return []types.NamespacedName{of}
		}
	}
	return nil
}
