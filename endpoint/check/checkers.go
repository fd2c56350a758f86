package check

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node is what is known of a machine with an agent.
type Node struct {
	Name      string
	Ready     bool
	Addresses []netip.Addr
}

// NodeOf reads a Node object. One that doesn't say that it isn't ready is ready.
func NodeOf(n *corev1.Node) Node {
	node := Node{Name: n.Name, Ready: n.DeletionTimestamp == nil}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			node.Ready = false
		}
	}
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			node.Addresses = append(node.Addresses, ip.Unmap())
		}
	}
	return node
}

// Equal reports whether two nodes check the same endpoints.
func (n Node) Equal(o Node) bool {
	return n.Name == o.Name && n.Ready == o.Ready && slices.Equal(n.Addresses, o.Addresses)
}

// maxCheckers is how many nodes check an endpoint that none of them is beside.
const maxCheckers = 3

// Nodes are the machines with agents. The zero value has none.
type Nodes struct {
	byName map[string]Node
	ready  []string // sorted
}

// NewNodes indexes nodes.
func NewNodes(list []Node) *Nodes {
	n := &Nodes{byName: map[string]Node{}}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, node := range list {
		n.byName[node.Name] = node
		if node.Ready {
			n.ready = append(n.ready, node.Name)
		}
	}
	return n
}

// Checkers are the nodes that check an endpoint: the one that the endpoint's
// author names, if it is ready; else up to three ready ones. That a machine has an
// address is its own word, and makes it no judge. The three follow from the
// address by rendezvous hashing: each node finds the same without asking the
// others, and one that comes or goes changes few endpoints.
func (n *Nodes) Checkers(addr netip.Addr, nodeName *string) []string {
	if nodeName != nil && n.byName[*nodeName].Ready {
		return []string{*nodeName}
	}
	if len(n.ready) <= maxCheckers {
		return n.ready
	}
	type bid struct {
		node  string
		value uint64
	}
	var best [maxCheckers]bid
	bytes := addr.As16()
	for _, name := range n.ready {
		b := bid{name, rendezvous(name, bytes)}
		for i := range best {
			if b.value > best[i].value || best[i].node == "" {
				best[i], b = b, best[i]
			}
		}
	}
	names := make([]string, maxCheckers)
	for i := range best {
		names[i] = best[i].node
	}
	slices.Sort(names)
	return names
}

func rendezvous(name string, addr [16]byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	_, _ = h.Write(addr[:])
	// FNV's high bits hardly know the last bytes (Murmur3's finalizer mends it).
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Owns reports whether an address is one that a node is known by.
func (n *Nodes) Owns(name string, a netip.Addr) bool {
	return slices.Contains(n.byName[name].Addresses, a)
}

// Has reports whether there is a node of a name, ready or not.
func (n *Nodes) Has(name string) bool {
	_, known := n.byName[name]
	return known
}
