package planes

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// Cluster is what the API would hold in a case, compiled for the node under
// test as its agent would: object by object, as they change.
type Cluster struct {
	config   compile.Config
	node     compile.Node
	compiler *compile.Compiler
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
}

// NewCluster is a cluster without Services.
func NewCluster() *Cluster {
	c := &Cluster{
		config: compile.Config{
			Pods:         model.PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
		},
		services: map[string]*corev1.Service{},
		slices:   map[string]*discoveryv1.EndpointSlice{},
	}
	c.node = nodeOf(NodeName, "10.244.1.0/24", "fd00:10:244:1::/64")
	c.compiler = compile.New(c.config)
	c.compiler.SetNode(c.node)
	return c
}

// newCluster is a cluster whose node has the addresses that the topology's has.
func (s *Topology) newCluster() *Cluster {
	c := NewCluster()
	for _, list := range []*[]netip.Addr{&c.node.Addresses, &c.node.Primary} {
		*list = slices.DeleteFunc(*list, func(a netip.Addr) bool { return !a.IsLoopback() && s.site.lacksFamily(a) })
	}
	c.compiler.SetNode(c.node)
	return c
}

// nodeOf is what is known of a node from the start.
func nodeOf(name, pods4, pods6 string) compile.Node {
	self := hosts[name]
	return compile.Node{
		Name: name, Zone: zones[name],
		Addresses: []netip.Addr{self.Addr4, self.Addr6, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()},
		Primary:   []netip.Addr{self.Addr4, self.Addr6},
		PodCIDRs:  []netip.Prefix{netip.MustParsePrefix(pods4), netip.MustParsePrefix(pods6)},
	}
}

// PeerTable compiles everything for the other node.
func (c *Cluster) PeerTable() *model.Table {
	node := nodeOf(peerName, "10.244.2.0/24", "fd00:10:244:2::/64")
	return compile.All(c.config, node, slices.Collect(maps.Values(c.services)), slices.Collect(maps.Values(c.slices)))
}

// Table compiles what has changed and compares with compiling everything anew.
func (c *Cluster) Table() (*model.Table, error) {
	table := c.compiler.Table()
	all := compile.All(c.config, c.node, slices.Collect(maps.Values(c.services)), slices.Collect(maps.Values(c.slices)))
	if difference := all.Since(table); !difference.Empty() {
		return nil, fmt.Errorf("compiled step by step and at once, the tables differ: %s", describe(difference))
	}
	if err := table.Validate(); err != nil {
		return nil, fmt.Errorf("compiled table: %w", err)
	}
	return table, nil
}

func describe(c *model.Changes) string {
	var b strings.Builder
	if c.Settings {
		fmt.Fprintf(&b, "settings; ")
	}
	for _, f := range c.Frontends {
		fmt.Fprintf(&b, "frontend %s: %+v, %+v; ", f.Key(), f.Old, f.New)
	}
	for _, p := range c.Pools {
		fmt.Fprintf(&b, "pool %s: %+v, %+v; ", p.ID(), p.Old, p.New)
	}
	return b.String()
}

// Apply adds or replaces the Services and EndpointSlices of a YAML stream.
func (c *Cluster) Apply(manifests []byte) error {
	for i, document := range bytes.Split(append([]byte("\n"), manifests...), []byte("\n---")) {
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		if err := c.applyOne(document); err != nil {
			return fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *Cluster) applyOne(document []byte) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(document, &meta); err != nil {
		return fmt.Errorf("read kind: %w", err)
	}
	switch meta.Kind {
	case "Service":
		s := &corev1.Service{}
		if err := yaml.UnmarshalStrict(document, s); err != nil {
			return fmt.Errorf("read Service: %w", err)
		}
		completeService(s)
		c.services[s.Namespace+"/"+s.Name] = s
		c.compiler.SetService(s)
	case "EndpointSlice":
		s := &discoveryv1.EndpointSlice{}
		if err := yaml.UnmarshalStrict(document, s); err != nil {
			return fmt.Errorf("read EndpointSlice: %w", err)
		}
		completeSlice(s)
		c.setSlice(s)
	default:
		return fmt.Errorf("kind %q: must be Service or EndpointSlice", meta.Kind)
	}
	return nil
}

func (c *Cluster) setSlice(s *discoveryv1.EndpointSlice) {
	c.slices[s.Namespace+"/"+s.Name] = s
	c.compiler.SetSlice(s)
}

// Delete removes a Service or an EndpointSlice. One that isn't there is a
// mistake in the case.
func (c *Cluster) Delete(kind, name string) error {
	namespace, short, err := splitName(name)
	if err != nil {
		return err
	}
	switch {
	case kind == "service" && c.services[name] != nil:
		delete(c.services, name)
		c.compiler.DeleteService(namespace, short)
	case kind == "endpointslice" && c.slices[name] != nil:
		delete(c.slices, name)
		c.compiler.DeleteSlice(namespace, short)
	default:
		return fmt.Errorf("no %s %s", kind, name)
	}
	return nil
}

// SetNode changes what is known of the node: "zone=zone-2".
func (c *Cluster) SetNode(fields []string) error {
	for _, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "zone":
			c.node.Zone = value
		default:
			return fmt.Errorf("%q: the node has zone=... only", field)
		}
	}
	c.compiler.SetNode(c.node)
	return nil
}

// Configure changes what the node's operator decides, as flags of the agent
// are spelt: "masquerade-all=true".
func (c *Cluster) Configure(fields []string) error {
	for _, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		if err := c.configure(key, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	c.compiler.SetConfig(c.config)
	return nil
}

func (c *Cluster) configure(key, value string) (err error) {
	var list []string
	if value != "" {
		list = strings.Split(value, ",")
	}
	switch key {
	case "cluster-cidr":
		c.config.Pods.Prefixes, err = parsePrefixes(list)
	case "pod-interfaces":
		c.config.Pods.Interfaces = list
	case "pods-of-node":
		c.config.PodsOfNode, err = strconv.ParseBool(value)
	case "service-cidr":
		c.config.ServiceCIDRs, err = parsePrefixes(list)
	case "nodeport-addresses":
		c.config.NodePorts, err = compile.ParseNodePortAddresses(list)
	case "localhost-nodeports":
		c.config.LocalhostNodePorts, err = strconv.ParseBool(value)
	case "masquerade-all":
		c.config.MasqueradeAll, err = strconv.ParseBool(value)
	case "direct-return":
		c.config.DirectReturn, err = strconv.ParseBool(value)
	default:
		err = fmt.Errorf("must be one of cluster-cidr, pod-interfaces, pods-of-node, service-cidr, nodeport-addresses, localhost-nodeports, masquerade-all, direct-return")
	}
	return err
}

func parsePrefixes(list []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}
