// Package node has the commands of one node: its agent, DNS, announcing, draining, cleaning up. Each file says what its command parses and
// what it calls.
package node
