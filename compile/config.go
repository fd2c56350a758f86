package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unique"

	"github.com/fairway-net/fairway/model"
)

// Config is what the node's operator decides. The zero value works, but tells
// no pods from others.
type Config struct {
	// Pods says which packets come from pods: the cluster's pod ranges, or the
	// names of the interfaces that pods' packets come in through.
	Pods model.PodMatch
	// PodsOfNode adds the node's own pod ranges (Node.PodCIDRs) to Pods:
	// kube-proxy's --detect-local-mode=NodeCIDR.
	PodsOfNode bool
	// ServiceCIDRs are the ranges that cluster IPs come from.
	ServiceCIDRs []netip.Prefix
	// NodePorts says at which of the node's addresses node ports answer.
	NodePorts NodePortAddresses
	// LocalhostNodePorts lets node ports answer at the node's loopback
	// addresses too, as far as NodePorts selects them.
	LocalhostNodePorts bool
	// MasqueradeAll masquerades all traffic to cluster IPs, that of pods
	// included.
	MasqueradeAll bool
	// DirectReturn has endpoints on other nodes answer clients outside
	// themselves, without this node, where a Service doesn't say otherwise: for
	// external traffic under the Cluster policy.
	DirectReturn bool
	// Served are cluster IPs at which a server on this node answers before any
	// data plane, while it can (the DNS Service's). While it can't, and there is
	// nobody else, packets are dropped: it will be back, and clients ask again.
	Served []netip.Addr
}

// NodePortAddresses selects addresses of the node. The zero value selects all.
type NodePortAddresses struct {
	Primary  bool           // the node's primary address of each family
	Prefixes []netip.Prefix // and addresses in these ranges
}

// The ranges that the words of --nodeport-addresses stand for (KEP-6032).
var (
	allAddresses      = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	loopbackAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
)

// Some reports whether only some of the node's addresses are selected.
func (a NodePortAddresses) Some() bool { return a.Primary || len(a.Prefixes) > 0 }

// ParseNodePortAddresses reads the values of a --nodeport-addresses flag:
// nothing for all addresses, or CIDRs and the words "primary", "localhost" and
// "all".
func ParseNodePortAddresses(values []string) (NodePortAddresses, error) {
	var a NodePortAddresses
	for _, value := range values {
		value = strings.TrimSpace(value)
		switch value {
		case "primary":
			a.Primary = true
			continue
		case "localhost":
			a.Prefixes = append(a.Prefixes, loopbackAddresses...)
			continue
		case "all":
			a.Prefixes = append(a.Prefixes, allAddresses...)
			continue
		}
		p, err := netip.ParsePrefix(value)
		if err != nil {
			return NodePortAddresses{}, fmt.Errorf("node-port addresses: %q is neither primary, localhost, all nor a CIDR such as 192.0.2.0/24", value)
		}
		a.Prefixes = append(a.Prefixes, p.Masked())
	}
	return a, nil
}

// Node is what is known of this node.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone
	// Addresses are all addresses of the node's interfaces, loopback included,
	// in any order.
	Addresses []netip.Addr
	// Primary are the addresses that the node is known by, at most one of each
	// family: the first ones in the Node object's status.
	Primary []netip.Addr
	// PodCIDRs are the ranges of this node's own pods.
	PodCIDRs []netip.Prefix
}

// nodeView is the part of a Node that endpoints are judged by.
type nodeView struct {
	name unique.Handle[string]
	zone string
	node string
}

func (n Node) judged() nodeView {
	return nodeView{name: unique.Make(n.Name), zone: n.Zone, node: n.Name}
}

// nodePortAddresses are the addresses that node ports answer at, sorted.
func (c *Compiler) nodePortAddresses() []netip.Addr {
	var list []netip.Addr
	for _, a := range slices.Concat(c.node.Addresses, c.node.Primary) {
		a = a.Unmap().WithZone("")
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast(),
			a.Is6() && a.IsLinkLocalUnicast(), // means nothing without a zone
			a.IsLoopback() && !c.config.LocalhostNodePorts,
			!c.selected(a):
		default:
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// selected reports whether node ports answer at an address of the node. A
// primary address counts whether or not an interface has it (yet).
func (c *Compiler) selected(a netip.Addr) bool {
	by := c.config.NodePorts
	if by.Primary && slices.Contains(c.node.Primary, a) {
		return true
	}
	here := slices.Contains(c.node.Addresses, a)
	return here && (contains(by.Prefixes, a) || !by.Primary && len(by.Prefixes) == 0)
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// podMatch is the configured one with the node's own ranges where wanted.
func (c *Compiler) podMatch() model.PodMatch {
	m := c.config.Pods
	if c.config.PodsOfNode {
		m.Prefixes = append(slices.Clone(m.Prefixes), c.node.PodCIDRs...)
	}
	return m
}

// tellsPods reports whether packets of pods can be recognised in a family.
func tellsPods(m model.PodMatch, ipv6 bool) bool {
	return len(m.Interfaces) > 0 ||
		slices.ContainsFunc(m.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() == ipv6 })
}

// compileSettings brings the table's settings up to date.
func (c *Compiler) compileSettings() {
	s := &model.Settings{Pods: c.podMatch(), NodePortAddrs: c.nodePortAddrs}
	for _, a := range c.node.Addresses {
		s.NodeAddrs = append(s.NodeAddrs, a.Unmap().WithZone(""))
	}
	for _, p := range c.config.ServiceCIDRs {
		s.Reserved = append(s.Reserved, p.Masked())
	}
	// This node's own addresses are never refused: a range that contains one
	// would cut it off from its network.
	for _, a := range s.NodeAddrs {
		if contains(s.Reserved, a) {
			s.Exempt = append(s.Exempt, a)
		}
	}
	for svc := range c.exempt {
		for _, a := range svc.spec.clusterIPs {
			if contains(s.Reserved, a) {
				s.Exempt = append(s.Exempt, a)
			}
		}
	}
	slices.SortFunc(s.NodeAddrs, netip.Addr.Compare)
	s.NodeAddrs = slices.Compact(s.NodeAddrs)
	slices.SortFunc(s.Exempt, netip.Addr.Compare)
	s.Exempt = slices.Compact(s.Exempt)
	slices.SortFunc(s.Reserved, netip.Prefix.Compare)
	s.Reserved = slices.Compact(s.Reserved)
	if !s.Equal(c.table.Settings) {
		c.change().SetSettings(s)
	}
}

// compileExempt keeps count of the Services that another proxy serves: their
// addresses are left alone.
func (c *Compiler) compileExempt(svc *service) {
	_, was := c.exempt[svc]
	is := svc.spec != nil && svc.spec.exempt
	if is {
		c.exempt[svc] = struct{}{}
	} else {
		delete(c.exempt, svc)
	}
	c.settingsDirty = c.settingsDirty || was || is
}
