// Package manifest reads Services, their endpoints and Nodes from files, for
// commands that work without an API.
package manifest

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairway-net/fairway/compile"
)

// Set is what was found in files.
type Set struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Pods     []*corev1.Pod
	Nodes    []*corev1.Node
	Ignored  []string // objects of other kinds, as "Kind namespace/name"
}

// Read reads files, folders or "-" for standard input: YAML or JSON, several
// documents and Lists included, as kubectl does. Endpoints become EndpointSlices
// where a Service has none of its own.
func Read(paths ...string) (*Set, error) {
	infos, err := resource.NewLocalBuilder().
		WithScheme(scheme.Scheme, scheme.Scheme.PrioritizedVersionsAllGroups()...).
		FilenameParam(false, &resource.FilenameOptions{Filenames: paths}).
		Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	set := &Set{}
	var endpoints []*corev1.Endpoints //nolint:staticcheck // still read where somebody writes them
	for _, info := range infos {
		switch o := info.Object.(type) {
		case *corev1.Service:
			set.Services = append(set.Services, namespaced(o, &o.Namespace))
		case *discoveryv1.EndpointSlice:
			set.Slices = append(set.Slices, namespaced(o, &o.Namespace))
		case *corev1.Endpoints: //nolint:staticcheck // see above
			endpoints = append(endpoints, namespaced(o, &o.Namespace))
		case *corev1.Pod:
			set.Pods = append(set.Pods, namespaced(o, &o.Namespace))
		case *corev1.Node:
			set.Nodes = append(set.Nodes, o)
		default:
			set.Ignored = append(set.Ignored, fmt.Sprintf("%s %s/%s", info.Object.GetObjectKind().GroupVersionKind().Kind, info.Namespace, info.Name))
		}
	}
	set.mirror(endpoints)
	return set, nil
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
