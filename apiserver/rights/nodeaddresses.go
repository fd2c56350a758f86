package rights

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const (
	// PublishersAnnotation, on a Service without a selector, names the machines that may
	// publish endpoints of it, divided by commas; * is all.
	PublishersAnnotation = "fairway.dev/publishers"
	// PublishRangesAnnotation, on a Node, are ranges besides its own addresses that the
	// machine may publish endpoints in, divided by commas. The machine itself may not set it.
	PublishRangesAnnotation = "publish.fairway.dev/ranges"
)

// MayPublish reports whether a Service with some annotations takes endpoints that a
// machine publishes.
func MayPublish(annotations map[string]string, node string) bool {
	for name := range strings.SplitSeq(annotations[PublishersAnnotation], ",") {
		if name = strings.TrimSpace(name); name == node || name == "*" {
			return true
		}
	}
	return false
}

// checkAddresses refuses addresses of a Node that can't be the machine's: what is sent to
// them goes elsewhere, or is another's.
func (n *NodeAdmission) checkAddresses(ctx context.Context, o, was *corev1.Node) error {
	var others []corev1.Node
	for _, a := range o.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP || err != nil || slices.Contains(was.Status.Addresses, a) {
			continue
		}
		ip = ip.Unmap()
		if !ip.IsGlobalUnicast() {
			return fmt.Errorf("status.addresses: %s is no address by which others reach a machine", ip)
		}
		for _, r := range n.ServiceRanges() {
			if r.Contains(ip) {
				return fmt.Errorf("status.addresses: %s is of the range of cluster IPs, %s", ip, r)
			}
		}
		if others == nil {
			if others, err = n.Nodes(ctx); err != nil {
				return fmt.Errorf("list Nodes: %w", err)
			}
		}
		for i := range others {
			if other := &others[i]; other.Name != o.Name && isAlive(other) && slices.Contains(addressesOf(other), ip) {
				return fmt.Errorf("status.addresses: %s is that of node %s, which is alive", ip, other.Name)
			}
		}
	}
	return nil
}

// isAlive reports whether a machine was heard of lately.
func isAlive(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// addressesOf are those by which a machine is reached.
func addressesOf(n *corev1.Node) (list []netip.Addr) {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && (a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP) {
			list = append(list, ip.Unmap())
		}
	}
	return list
}

// checkPublished refuses endpoints at addresses that aren't the machine's: its own, those
// of its pods, and those that an administrator has allowed it. Those that a slice has
// already stay.
func (n *NodeAdmission) checkPublished(ctx context.Context, node string, s, was *discoveryv1.EndpointSlice) error {
	var own []netip.Addr
	var ranges []netip.Prefix
	for i, e := range s.Endpoints {
		for _, text := range e.Addresses {
			ip, err := netip.ParseAddr(text)
			if err != nil || published(was, text) {
				continue // what is no address, validation refuses
			}
			if own == nil {
				if own, ranges, err = n.addresses(ctx, node); err != nil {
					return err
				}
			}
			ip = ip.Unmap()
			if !slices.Contains(own, ip) && !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(ip) }) {
				return fmt.Errorf("endpoints[%d].addresses: %s is none of node %s's; an administrator may allow more, by the Node's annotation %s", i, ip, node, PublishRangesAnnotation)
			}
		}
	}
	return nil
}

// published reports whether a slice has an address.
func published(s *discoveryv1.EndpointSlice, address string) bool {
	return s != nil && slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return slices.Contains(e.Addresses, address) })
}

// addresses are those that a machine may publish endpoints at.
func (n *NodeAdmission) addresses(ctx context.Context, node string) (own []netip.Addr, ranges []netip.Prefix, err error) {
	list, err := n.Nodes(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list Nodes: %w", err)
	}
	own = []netip.Addr{}
	i := slices.IndexFunc(list, func(o corev1.Node) bool { return o.Name == node })
	if i < 0 {
		return own, nil, nil
	}
	texts := slices.Concat(list[i].Spec.PodCIDRs, strings.Split(list[i].Annotations[PublishRangesAnnotation], ","))
	for _, text := range texts {
		if r, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			ranges = append(ranges, r)
		}
	}
	return addressesOf(&list[i]), ranges, nil
}
