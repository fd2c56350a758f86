// Package lab runs a cluster of network namespaces on one machine: an API
// server, nodes with an agent process each, pods, and an outside client. No
// containers, ordinary kubectl, real packets.
//
// A lab is held by one supervisor process. It is the kubelet of all nodes, the
// scheduler and the Deployment controller, and keeps the other processes
// running: one API server, which listens on the host's loopback for the user's
// kubectl, and an agent inside each node's namespace. To nodes and pods the API
// server is on the underlay: the supervisor relays connections to the underlay's
// gateway address to it, at the same port. The host's own network stays as it is.
package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/lab/controlplane"
	"github.com/fairway-net/fairway/lab/topology"
)

// DefaultName is the name of the lab that commands mean if they are given none.
const DefaultName = "lab"

// NoMode stands for nodes without an agent: for another proxy, or for none.
const NoMode = "none"

// maxName leaves room in the paths of sockets, which have 107 bytes.
const maxName = 40

// maxNodes is how many nodes have room in the pods' address range.
const maxNodes = 255

// Config says what a lab shall be.
type Config struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	Mode  string `json:"mode"` // the agents' data plane
	// ServiceCIDRs are where cluster IPs come from: one range, or one of each
	// IP family.
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs"`
	// LoadBalancerRanges, such as 10.77.0.100-10.77.0.110, are addresses for
	// Services of type LoadBalancer, which the nodes announce to the client.
	LoadBalancerRanges []string `json:"loadBalancerRanges,omitempty"`
	// Router is what stands between the nodes and the client and is announced to
	// by BGP: RouterFRR or RouterBird; "" is none.
	Router string `json:"router,omitempty"`
	// AgentArgs are further arguments for every agent.
	AgentArgs []string `json:"agentArgs,omitempty"`
	// Images, such as whoami=/usr/local/bin/whoami --port 80, are commands of the
	// host that stand for images whose name has the first part.
	Images []string `json:"images,omitempty"`
	// Gateway has every node serve Gateways and Ingresses.
	Gateway bool `json:"gateway,omitempty"`
	// ClientSeesClusterIPs gives the client outside a route to cluster IPs, which machines
	// outside of a cluster have not. Tests ask that way; `fairway lab up` doesn't by default.
	ClientSeesClusterIPs bool `json:"clientSeesClusterIPs,omitempty"`
	// GatewayEngine is what serves them; "" is the usual one.
	GatewayEngine string `json:"gatewayEngine,omitempty"`
	// Kubernetes is a directory of Kubernetes' own etcd, kube-apiserver and
	// kube-controller-manager, to be used instead of Fairway's; "" for Fairway's.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// DefaultConfig is a lab of three nodes in three zones, dual-stack.
func DefaultConfig() Config {
	return Config{
		Name: DefaultName, Nodes: 3, Mode: agent.AutoMode, ClientSeesClusterIPs: true,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
	}
}

// Validate refuses what can't work, naming the field.
func (c Config) Validate() error {
	switch {
	case len(c.Name) > maxName:
		return fmt.Errorf("lab name %q: must have at most %d characters", c.Name, maxName)
	case c.Nodes < 1 || c.Nodes > maxNodes:
		return fmt.Errorf("nodes %d: must be between 1 and %d", c.Nodes, maxNodes)
	case len(c.ServiceCIDRs) < 1 || len(c.ServiceCIDRs) > 2:
		return fmt.Errorf("service CIDRs %v: must be one range, or one of each IP family", c.ServiceCIDRs)
	}
	if c.Mode != NoMode && c.Mode != agent.AutoMode {
		if _, err := dataplane.Find(c.Mode); err != nil {
			return fmt.Errorf("mode: %w", err)
		}
	}
	if c.Kubernetes != "" {
		if err := (controlplane.Options{Binaries: c.Kubernetes}).Check(); err != nil {
			return fmt.Errorf("kubernetes: %w", err)
		}
	}
	_, err := c.commands()
	return errors.Join(err, checkRouter(c.Router), topology.CheckName(c.Name))
}

// checkPrivileges says at once what would fail later for want of them.
func checkPrivileges() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab is made of network namespaces, which takes root: try sudo")
	}
	return nil
}

// NodeName is the name of node number i, counted from 1.
func NodeName(i int) string { return fmt.Sprintf("node%d", i) }

// zone is the zone of node number i: nodes take turns in three.
func zone(i int) string { return "zone-" + string(rune('a'+(i-1)%3)) }
