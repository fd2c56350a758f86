// Package topology builds the network of a lab out of network namespaces: an
// underlay bridge, nodes with pod CIDRs, pods, and clients outside the cluster.
// Nothing of it touches the namespace of the caller.
//
//	fairway.LAB.underlay     bridge br0: 172.30.0.1, fd00:172:30::1 (gateway of all)
//	   ├── fairway.LAB.node1     eth0: 172.30.0.11; pods 10.244.1.0/24
//	   │      └── pod2 ── eth0 of fairway.LAB.pod.NAME: 10.244.1.2
//	   ├── fairway.LAB.node2     eth0: 172.30.0.12; pods 10.244.2.0/24
//	   └── fairway.LAB.client    eth0: 172.30.100.1
//
// Pods are routed, not bridged: a node has one route and one permanent
// neighbour entry for each, and reaches the other nodes' pods through their
// underlay addresses. Everything exists in IPv4 and IPv6. Addresses are the
// same in every lab; labs never see each other.
package topology

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/fairway-net/fairway/internal/netns"
)

// Options are the address ranges. A zero prefix stands for the default.
type Options struct {
	Underlay4 netip.Prefix // 172.30.0.0/16
	Underlay6 netip.Prefix // fd00:172:30::/64
	Pods4     netip.Prefix // 10.244.0.0/16, a /24 for each node
	Pods6     netip.Prefix // fd00:10:244::/56, a /64 for each node
}

// Lab is a network of namespaces. Its methods may be called concurrently.
type Lab struct {
	name     string
	options  Options
	underlay *Host
	client   *Host

	mu      sync.Mutex
	nodes   map[string]*Node
	clients map[string]*Host
	next    int // index of the next node
}

// New makes a lab with an underlay and one outside client, named "client". It
// fails if there is a lab of that name already; Remove says how to get rid of it.
func New(name string, o Options) (*Lab, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if left, err := netns.Names(prefix(name)); err != nil {
		return nil, err
	} else if len(left) > 0 {
		return nil, fmt.Errorf("create lab %s: it exists already (network namespace %s)", name, left[0])
	}
	l := &Lab{name: name, options: o, nodes: map[string]*Node{}, clients: map[string]*Host{}}
	if l.underlay, err = newUnderlay(l); err != nil {
		return nil, errors.Join(fmt.Errorf("create lab %s: %w", name, err), l.Remove())
	}
	if l.client, err = l.AddClient("client"); err != nil {
		return nil, errors.Join(fmt.Errorf("create lab %s: %w", name, err), l.Remove())
	}
	return l, nil
}

// Name is the lab's name.
func (l *Lab) Name() string { return l.name }

// Underlay is the namespace of the bridge. It has the gateway addresses but
// forwards nothing.
func (l *Lab) Underlay() *Host { return l.underlay }

// Client is the outside client that every lab has.
func (l *Lab) Client() *Host { return l.client }

// Nodes are the nodes in the order of their names.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	nodes := make([]*Node, 0, len(l.nodes))
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		nodes = append(nodes, l.nodes[name])
	}
	return nodes
}

// Remove ends the lab's processes and removes its namespaces and cgroups; it
// may be called again, and after an error in between.
func (l *Lab) Remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, n := range l.nodes {
		for _, p := range n.pods {
			errs = append(errs, p.close())
		}
		errs = append(errs, n.close())
	}
	for _, c := range l.clients {
		errs = append(errs, c.close())
	}
	if l.underlay != nil {
		errs = append(errs, l.underlay.close())
	}
	l.nodes, l.clients = map[string]*Node{}, map[string]*Host{}
	return errors.Join(append(errs, Remove(l.name))...)
}

// AddClient adds a client outside the cluster: it reaches every node's address
// and has no route to pods or Services (see Host.Route).
func (l *Lab) AddClient(name string) (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkHost(name); err != nil {
		return nil, err
	}
	k := len(l.clients) + 1
	const first4, first6 = 100 << 8, 1 << 16 // 172.30.100.k, fd00:172:30::1:k
	c, err := l.newHost(name, []netip.Addr{
		nth(l.options.Underlay4, first4+k),
		nth(l.options.Underlay6, first6+k),
	})
	if err != nil {
		return nil, fmt.Errorf("add client %s: %w", name, err)
	}
	l.clients[name] = c
	return c, nil
}

// checkHost refuses names that namespaces of the lab have already.
func (l *Lab) checkHost(name string) error {
	if err := checkLabel("host name", name); err != nil {
		return err
	}
	_, node := l.nodes[name]
	_, client := l.clients[name]
	if node || client || name == underlayName || name == podInfix {
		return fmt.Errorf("host name %q: taken", name)
	}
	return nil
}
