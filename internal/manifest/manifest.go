// Package manifest reads Services, their endpoints and Nodes from files, for
// commands that work without an API.
package manifest

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/fairway-net/fairway/compile"
)

// Set is what was found in files.
type Set struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Pods     []*corev1.Pod
	Nodes    []*corev1.Node
	Ignored  []string // objects of other kinds, as "Kind namespace/name"
	Warnings []string // fields that nobody knows: what they say has no effect
	Mistakes []string // what leaves an object out

	templates []template
}

// Read reads files, folders or "-" for standard input: YAML or JSON, several
// documents and Lists included, as kubectl does. Endpoints become EndpointSlices
// where a Service has none of its own. An object with a mistake is left out,
// and the mistake named.
func Read(paths ...string) (*Set, error) {
	infos, err := resource.NewLocalBuilder().Unstructured().
		FilenameParam(false, &resource.FilenameOptions{Filenames: paths}).
		Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	set := &Set{}
	var endpoints []*corev1.Endpoints //nolint:staticcheck // still read where somebody writes them
	for _, info := range infos {
		name := nameOf(info)
		o, unknown, err := decode(info.Object)
		for _, text := range unknown {
			set.Warnings = append(set.Warnings, name+": "+text+": it has no effect")
		}
		if err != nil {
			set.Mistakes = append(set.Mistakes, name+": "+err.Error())
			continue
		}
		if e, ok := o.(*corev1.Endpoints); ok { //nolint:staticcheck // see above
			if set.valid(name, checkEndpoints(e)) {
				endpoints = append(endpoints, namespaced(e, &e.Namespace))
			}
			continue
		}
		set.add(name, o)
	}
	set.mirror(endpoints)
	return set, nil
}

// nameOf is what messages call an object.
func nameOf(info *resource.Info) string {
	kind := info.Object.GetObjectKind().GroupVersionKind().Kind
	if info.Namespace == "" {
		return kind + " " + info.Name
	}
	return kind + " " + info.Namespace + "/" + info.Name
}

// add puts an object where its kind belongs.
func (s *Set) add(name string, o runtime.Object) {
	t, makesPods := templateOf(o)
	if makesPods {
		s.templates = append(s.templates, t)
	}
	switch o := o.(type) {
	case *corev1.Service:
		if s.valid(name, checkService(o)) {
			s.Services = append(s.Services, namespaced(o, &o.Namespace))
		}
	case *discoveryv1.EndpointSlice:
		if s.valid(name, checkSlice(o)) {
			s.Slices = append(s.Slices, namespaced(o, &o.Namespace))
		}
	case *corev1.Pod:
		s.Pods = append(s.Pods, namespaced(o, &o.Namespace))
	case *corev1.Node:
		s.Nodes = append(s.Nodes, o)
	default:
		if !makesPods {
			s.Ignored = append(s.Ignored, name)
		}
	}
}

// valid says whether an object can be used, and notes why not.
func (s *Set) valid(name string, errs field.ErrorList) bool {
	for _, err := range errs {
		s.Mistakes = append(s.Mistakes, name+": "+err.Error())
	}
	return len(errs) == 0
}

// namespaced fills in the namespace that kubectl would.
func namespaced[T runtime.Object](o T, namespace *string) T {
	if *namespace == "" {
		*namespace = corev1.NamespaceDefault
	}
	return o
}

// Node is what the set says of the Node with this name, or of its first Node if
// the name is empty.
func (s *Set) Node(name string) (compile.Node, error) {
	for _, n := range s.Nodes {
		if name == "" || n.Name == name {
			return NodeOf(n), nil
		}
	}
	if name != "" && len(s.Nodes) > 0 {
		return compile.Node{}, fmt.Errorf("no Node %q in the manifests", name)
	}
	return compile.Node{Name: name}, nil
}

// NodeOf is what a Node object says of a node.
func NodeOf(n *corev1.Node) compile.Node {
	node := compile.Node{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone]}
	families := map[bool]bool{}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue // a host name
		}
		node.Addresses = append(node.Addresses, ip)
		if a.Type == corev1.NodeInternalIP && !families[ip.Is6()] {
			families[ip.Is6()] = true
			node.Primary = append(node.Primary, ip)
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			node.PodCIDRs = append(node.PodCIDRs, p)
		}
	}
	return node
}

// PodCIDRs are the pod ranges of all Nodes.
func PodCIDRs(nodes []*corev1.Node) []netip.Prefix {
	var list []netip.Prefix
	for _, n := range nodes {
		list = append(list, NodeOf(n).PodCIDRs...)
	}
	return list
}
