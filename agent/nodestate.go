package agent

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/nodeaddrs"
)

// setNode takes in what the Node object says; nil if there is none (yet): then
// the node has no zone, and its addresses are those of the machine alone.
func (s *state) setNode(node *corev1.Node) {
	s.update(func(c *compile.Compiler) {
		next := compile.Node{Name: s.node.Name, Addresses: s.node.Addresses}
		if node != nil {
			next.Zone = node.Labels[corev1.LabelTopologyZone]
			next.Primary = primaryOf(node)
			next.PodCIDRs = podCIDRs(node)
		}
		if len(next.Primary) == 0 {
			next.Primary = nodeaddrs.Primary(next.Addresses)
		}
		s.replaceNode(c, next)
	})
	s.complete(partNode)
}

// setAddresses takes in the addresses that this machine's interfaces have.
func (s *state) setAddresses(addresses []netip.Addr) {
	s.update(func(c *compile.Compiler) {
		next := s.node
		next.Addresses = addresses
		if len(next.Primary) == 0 {
			next.Primary = nodeaddrs.Primary(addresses)
		}
		s.replaceNode(c, next)
	})
	s.complete(partAddresses)
}

// replaceNode compiles all Services anew, so it does nothing for the many
// updates of a Node (heartbeats, images) that say nothing new.
func (s *state) replaceNode(c *compile.Compiler, next compile.Node) {
	if s.primary.IsValid() {
		next.Primary = slices.DeleteFunc(slices.Clone(next.Primary), func(a netip.Addr) bool { return a.Is4() == s.primary.Is4() })
		next.Primary = append(next.Primary, s.primary)
	}
	same := next.Name == s.node.Name && next.Zone == s.node.Zone && slices.Equal(next.Addresses, s.node.Addresses) &&
		slices.Equal(next.Primary, s.node.Primary) && slices.Equal(next.PodCIDRs, s.node.PodCIDRs)
	if !same {
		s.node = next
		c.SetNode(next)
	}
}

// primaryOf are the first InternalIPs of each family, else the first
// ExternalIPs, as kube-proxy takes them.
func primaryOf(node *corev1.Node) []netip.Addr {
	var primary []netip.Addr
	has := map[bool]bool{} // by family
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil || has[ip.Is6()] {
				continue
			}
			has[ip.Is6()] = true
			primary = append(primary, ip.Unmap())
		}
	}
	return primary
}

func podCIDRs(node *corev1.Node) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, p.Masked())
		}
	}
	return list
}
