package rights

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairway-net/fairway/internal/machineuser"
)

const (
	// NodeLabel marks EndpointSlices that a machine publishes: its value is
	// the name of the machine's Node, the only one that may write them.
	NodeLabel = "fairway.dev/node"

	dnsService = "kube-dns"
)

// nodeLabels are the labels that a machine may give its own Node. Others steer
// what runs there, or what traffic goes there, and are for administrators.
var nodeLabels = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
}

// NodeAdmission holds machines to their own objects, and to what an agent
// writes into them.
type NodeAdmission struct {
	// Service finds a Service. Machines publish endpoints for those without a selector,
	// which say that they may.
	Service func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	// Nodes lists all machines.
	Nodes func(ctx context.Context) ([]corev1.Node, error)
	// ServesGateways says which machines may say that they serve Gateways: those get the
	// requests. None if it is nil.
	ServesGateways func(node string) bool
	// ServiceRanges are the ranges of cluster IPs.
	ServiceRanges func() []netip.Prefix
}

var _ admission.ValidationInterface = (*NodeAdmission)(nil)

// Handles implements admission.Interface.
func (*NodeAdmission) Handles(operation admission.Operation) bool {
	return operation != admission.Connect
}

// Validate implements admission.ValidationInterface.
func (n *NodeAdmission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !slices.Contains(a.GetUserInfo().GetGroups(), user.NodesGroup) {
		return nil
	}
	node, ok := NodeName(a.GetUserInfo())
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("a member of system:nodes must be named %sNAME", NodePrefix))
	}
	if err := n.check(ctx, node, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

func (n *NodeAdmission) check(ctx context.Context, node string, a admission.Attributes) error {
	obj, old := a.GetObject(), a.GetOldObject()
	switch o := obj.(type) {
	case *corev1.Node:
		was, _ := old.(*corev1.Node)
		if was == nil {
			was = &corev1.Node{}
		}
		if err := checkNode(node, o, was); err != nil {
			return err
		}
		return n.checkAddresses(ctx, o, was)
	case *coordinationv1.Lease:
		if err := n.checkLease(node, o); err != nil {
			return err
		}
		return checkMeta(node, o)
	case *discoveryv1.EndpointSlice:
		was, ok := old.(*discoveryv1.EndpointSlice)
		if ok {
			if err := ownSlice(node, was); err != nil {
				return err
			}
		}
		return n.checkSlice(ctx, node, o, was)
	case *unstructured.Unstructured:
		return checkAnnouncement(node, o)
	case metav1.Object:
		return checkMeta(node, o)
	case nil:
		if was, ok := old.(*discoveryv1.EndpointSlice); ok {
			return ownSlice(node, was)
		}
		if a.GetResource().Resource == "endpointslices" {
			return fmt.Errorf("a node may delete EndpointSlices of its own only")
		}
	}
	return nil
}

// checkLease refuses what isn't the node's heartbeat, nor says that it serves Gateways.
func (n *NodeAdmission) checkLease(node string, o *coordinationv1.Lease) error {
	switch {
	case o.Namespace == corev1.NamespaceNodeLease && o.Name == node:
		return nil
	case o.Namespace != metav1.NamespaceSystem || o.Name != machineuser.GatewayLease(node):
		return fmt.Errorf("a node may write the Lease of its own name only")
	case n.ServesGateways == nil || !n.ServesGateways(node):
		return fmt.Errorf("the server's --gateway-machines doesn't name %s, which may not serve Gateways", node)
	case o.Spec.HolderIdentity == nil || *o.Spec.HolderIdentity != node:
		return fmt.Errorf("a node may say of itself only that it serves Gateways")
	}
	return nil
}

// checkAnnouncement checks a custom resource. The only ones that a machine may
// write say what it announces, and their names say whose they are.
func checkAnnouncement(node string, o *unstructured.Unstructured) error {
	if !isOwnAnnouncement(node, o.GetName()) {
		return fmt.Errorf("a node may not write %s %s: its own are named speaker-NODE, l2-NODE.… and bgp-NODE.…", o.GetKind(), o.GetName())
	}
	return checkMeta(node, o)
}

func checkNode(node string, o, was *corev1.Node) error {
	if o.Name != node {
		return fmt.Errorf("a node may write its own Node only")
	}
	if err := checkMeta(node, o); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(o.Spec, was.Spec) {
		return fmt.Errorf("a node may not set spec of its Node: taints, ranges and schedulability are for administrators and controllers")
	}
	for _, key := range changed(o.Labels, was.Labels) {
		if !slices.Contains(nodeLabels, key) {
			return fmt.Errorf("a node may not set label %s of its Node", key)
		}
	}
	for _, key := range changed(o.Annotations, was.Annotations) {
		if !strings.HasPrefix(key, FairwayGroup+"/") {
			return fmt.Errorf("a node may not set annotation %s of its Node", key)
		}
	}
	return nil
}

// checkMeta refuses what would delete or keep objects by the hand of a
// controller: finalizers, and owners other than the node itself.
func checkMeta(node string, o metav1.Object) error {
	if len(o.GetFinalizers()) > 0 {
		return fmt.Errorf("a node may not set finalizers")
	}
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind != "Node" || owner.APIVersion != "v1" || owner.Name != node {
			return fmt.Errorf("a node may not make its objects belong to %s %s", owner.Kind, owner.Name)
		}
	}
	return nil
}

// ownSlice reports why an EndpointSlice isn't the node's.
func ownSlice(node string, s *discoveryv1.EndpointSlice) error {
	if isDNSSlice(node, s) || s.Labels[NodeLabel] == node {
		return nil
	}
	return fmt.Errorf("EndpointSlice %s isn't this node's: its label %s is %q", s.Name, NodeLabel, s.Labels[NodeLabel])
}

func isDNSSlice(node string, s *discoveryv1.EndpointSlice) bool {
	return s.Namespace == metav1.NamespaceSystem && s.Name == dnsService+"-"+node && s.Labels[discoveryv1.LabelServiceName] == dnsService
}

// checkSlice checks an EndpointSlice; was is what it was, nil if it is new.
func (n *NodeAdmission) checkSlice(ctx context.Context, node string, s, was *discoveryv1.EndpointSlice) error {
	if err := ownSlice(node, s); err != nil {
		return err
	}
	if err := checkMeta(node, s); err != nil {
		return err
	}
	for i, e := range s.Endpoints {
		if e.NodeName == nil || *e.NodeName != node {
			return fmt.Errorf("endpoints[%d].nodeName: a node publishes endpoints on itself only", i)
		}
	}
	service := s.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		return nil // a report of health checks: no proxy reads it
	}
	if err := n.checkPublished(ctx, node, s, was); err != nil || isDNSSlice(node, s) {
		return err
	}
	if s.Namespace == metav1.NamespaceSystem || s.Namespace == metav1.NamespaceDefault && service == "kubernetes" {
		return fmt.Errorf("a node publishes no endpoints of Service %s/%s", s.Namespace, service)
	}
	of, err := n.Service(ctx, s.Namespace, service)
	if err != nil {
		return fmt.Errorf("find Service %s/%s: %w", s.Namespace, service, err)
	}
	if len(of.Spec.Selector) > 0 {
		return fmt.Errorf("a node publishes no endpoints of Service %s/%s: its selector chooses them", s.Namespace, service)
	}
	if was != nil && was.Labels[discoveryv1.LabelServiceName] == service {
		return nil // published before Services had a say in it
	}
	if !MayPublish(of.Annotations, node) {
		return fmt.Errorf("a node publishes no endpoints of Service %s/%s: the Service doesn't say that it may, by its annotation %s", s.Namespace, service, PublishersAnnotation)
	}
	return nil
}

// changed returns the keys whose values differ.
func changed(a, b map[string]string) []string {
	keys := slices.Collect(maps.Keys(a))
	keys = append(keys, slices.Collect(maps.Keys(b))...)
	return slices.DeleteFunc(keys, func(key string) bool {
		x, inA := a[key]
		y, inB := b[key]
		return inA == inB && x == y
	})
}
