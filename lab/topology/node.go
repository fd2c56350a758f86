package topology

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Node is a host that forwards to its pods. A cgroup of its own (see Cgroup) is
// there for its processes.
type Node struct {
	*Host
	// PodCIDRs are the ranges of the node's pods: IPv4, then IPv6.
	PodCIDRs []netip.Prefix

	lab    *Lab
	podsMu sync.Mutex
	pods   map[string]*Pod
	power  sync.RWMutex // held while processes start, and while power goes or comes back
	last   int          // number of the address given out last
	taken  map[int]bool // numbers of addresses in use
}

// AddNode adds a node and the routes between it and the other nodes' pods.
func (l *Lab) AddNode(name string) (*Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkHost(name); err != nil {
		return nil, err
	}
	n, err := l.newNode(name, l.next+1)
	if err != nil {
		return nil, fmt.Errorf("add node %s: %w", name, err)
	}
	for _, other := range l.nodes {
		if err := errors.Join(n.routePods(other), other.routePods(n)); err != nil {
			return nil, errors.Join(fmt.Errorf("add node %s: %w", name, err), n.remove())
		}
	}
	l.next++
	l.nodes[name] = n
	return n, nil
}

// newNode makes the namespace of the lab's node number i, counted from 1.
func (l *Lab) newNode(name string, i int) (*Node, error) {
	cidr4, err := subnet(l.options.Pods4, nodeBits4, i)
	if err != nil {
		return nil, err
	}
	cidr6, err := subnet(l.options.Pods6, nodeBits6, i)
	if err != nil {
		return nil, err
	}
	const first = 10 // 172.30.0.11 is node 1
	host, err := l.newHost(name, []netip.Addr{nth(l.options.Underlay4, first+i), nth(l.options.Underlay6, first+i)})
	if err != nil {
		return nil, err
	}
	n := &Node{Host: host, lab: l, PodCIDRs: []netip.Prefix{cidr4, cidr6},
		pods: map[string]*Pod{}, last: firstPod - 1, taken: map[int]bool{}}
	if err := n.becomeRouter(); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

// becomeRouter sets what a node of a Kubernetes cluster has set. Reverse paths
// are checked loosely, as systemd's distributions do. The default route leads to
// the underlay, which drops; without one, connections from the node to a Service
// address would fail before any data plane sees them.
func (n *Node) becomeRouter() error {
	for _, s := range []struct{ path, value string }{
		{"net/ipv4/ip_forward", "1"},
		{"net/ipv6/conf/all/forwarding", "1"},
		{"net/ipv4/conf/all/rp_filter", "2"},
		{"net/ipv4/conf/default/rp_filter", "2"},
		{"net/ipv4/conf/all/send_redirects", "0"},
		{"net/ipv4/conf/default/send_redirects", "0"},
		{"net/ipv4/conf/" + NodeInterface + "/send_redirects", "0"}, // was there before the default
	} {
		if err := n.sysctl(s.path, s.value); err != nil {
			return err
		}
	}
	for i, all := range []string{"0.0.0.0/0", "::/0"} {
		if err := n.Route(netip.MustParsePrefix(all), n.lab.underlay.Addresses[i]); err != nil {
			return err
		}
	}
	return nil
}

// routePods routes another node's pods through that node.
func (n *Node) routePods(other *Node) error {
	for i, cidr := range other.PodCIDRs {
		if err := n.Route(cidr, other.Addresses[i]); err != nil {
			return err
		}
	}
	return nil
}

// Pods are the node's pods in the order of their names.
func (n *Node) Pods() []*Pod {
	n.podsMu.Lock()
	defer n.podsMu.Unlock()
	pods := make([]*Pod, 0, len(n.pods))
	for _, name := range slices.Sorted(maps.Keys(n.pods)) {
		pods = append(pods, n.pods[name])
	}
	return pods
}

// LabName is the name of the node's lab.
func (n *Node) LabName() string { return n.lab.name }
