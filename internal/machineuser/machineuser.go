// Package machineuser has the names by which a machine is known to the API: that of its
// agent, and that of the processes that serve Gateways on it.
package machineuser

import "strings"

const (
	// NodePrefix begins the user name of a machine's agent; the name of its Node follows.
	NodePrefix = "system:node:"
	// NodesGroup is the group of agents.
	NodesGroup = "system:nodes"
	// GatewayPrefix begins the user name of a machine's processes of Gateways; the name
	// of its Node follows.
	GatewayPrefix = "system:fairway:gateway:"
	// GatewaysGroup is the group of processes of Gateways.
	GatewaysGroup = "system:fairway:gateways"
)

// User is one of a machine's users.
type User struct {
	Node       string
	ForGateway bool
}

// Parse reads a user name; false if it is not one of a machine's.
func Parse(name string) (User, bool) {
	if node, found := strings.CutPrefix(name, NodePrefix); found {
		return User{Node: node}, node != ""
	}
	node, found := strings.CutPrefix(name, GatewayPrefix)
	return User{Node: node, ForGateway: true}, found && node != ""
}

// Name is the user name.
func (u User) Name() string {
	if u.ForGateway {
		return GatewayPrefix + u.Node
	}
	return NodePrefix + u.Node
}

// Group is the user's group.
func (u User) Group() string {
	if u.ForGateway {
		return GatewaysGroup
	}
	return NodesGroup
}

// GatewayLease names the Lease, in the namespace of engines, that says that a node serves
// Gateways.
func GatewayLease(node string) string { return "fairway-gateway-" + node }
