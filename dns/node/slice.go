package node

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/dns"
)

// publish keeps this node's EndpointSlice of the DNS Service: what other nodes
// forward to while their own server is unwell. It goes with the Node.
func (n *DNS) publish(ctx context.Context, ready bool) error {
	if n.isSliceGone() {
		n.published = nil
	}
	if n.published != nil && *n.published == ready {
		return nil
	}
	name := n.NodeName
	node, err := n.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find node %s: %w", name, err)
	}
	want := n.slice(node, ready)
	n.own = want
	slices := n.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
	have, err := slices.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && !(reflect.DeepEqual(have.Endpoints, want.Endpoints) && reflect.DeepEqual(have.Ports, want.Ports)):
		want.ResourceVersion = have.ResourceVersion
		_, err = slices.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s: %w", want.Name, err)
	}
	n.published = &ready
	return nil
}

// isSliceGone reports whether somebody has deleted the slice since it was last there.
func (n *DNS) isSliceGone() bool {
	there := n.Index.HasSlice(n.sliceName())
	gone := n.seen && !there
	n.seen = there
	return gone
}

// retire tells the others that this server ends.
func (n *DNS) retire(ctx context.Context) {
	if n.own == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := n.publish(ctx, false); err != nil {
		n.Log.Warn("other nodes aren't told that DNS on this node ends", "error", err)
	}
}

// sliceName names this node's EndpointSlice of the DNS Service.
func (n *DNS) sliceName() types.NamespacedName {
	return types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: dns.ServiceName + "-" + n.NodeName}
}

func (n *DNS) slice(node *corev1.Node, ready bool) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: n.sliceName().Namespace, Name: n.sliceName().Name,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: dns.ServiceName,
				discoveryv1.LabelManagedBy:   "dns.fairway",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{n.node[0].String()}, NodeName: &node.Name,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
	}
	if n.node[0].Is6() {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	number := int32(n.Port)
	for _, p := range dns.ServicePorts() {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
	}
	return s
}
