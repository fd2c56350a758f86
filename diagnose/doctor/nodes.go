package doctor

import "strings"

// mostNamedNodes is how many nodes are named in a line.
const mostNamedNodes = 8

// String is the node's name, for people.
func (n *Node) String() string { return orElse(n.Name, "this machine") }

// on says what was found on the node, whose name comes first. What is of this machine alone
// needs none.
func (n *Node) on(what string) string {
	if n.Name == "" {
		return what
	}
	return n.Name + ": " + what
}

// looked are the nodes whose facts were read.
func (e *Evidence) looked() []*Node {
	var list []*Node
	for i := range e.Nodes {
		if e.Nodes[i].Host != nil {
			list = append(list, &e.Nodes[i])
		}
	}
	return list
}

// probing are the nodes that packets are sent from.
func (e *Evidence) probing() []*Node {
	var list []*Node
	for i := range e.Nodes {
		if e.Nodes[i].Probe != nil {
			list = append(list, &e.Nodes[i])
		}
	}
	return list
}

// clientNode is the node that packets are sent from where the client is; nil if none is.
func (e *Evidence) clientNode() *Node {
	for _, n := range e.probing() {
		if e.Report == nil || e.Report.From.Node == "" || n.Name == "" || n.Name == e.Report.From.Node {
			return n
		}
	}
	return nil
}

// names are the names of nodes, for people.
func names(nodes []*Node) []string {
	var list []string
	for i, n := range nodes {
		if i == mostNamedNodes {
			return append(list, "...")
		}
		list = append(list, n.String())
	}
	return list
}

// unlooked names the nodes of those that were asked whose facts couldn't be read.
func unlooked(e *Evidence) []string {
	var list []string
	for i := range e.Nodes {
		if n := &e.Nodes[i]; n.Host == nil {
			list = append(list, n.String()+" doesn't tell")
		}
	}
	return list
}

// join lists names.
func join(list []string) string { return strings.Join(list, ", ") }
