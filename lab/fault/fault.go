// Package fault breaks the network of a lab's pods and nodes, and mends it. What
// it makes belongs to network namespaces of the lab and goes with them.
//
//	fault.go  the kinds of faults
//	pod.go    packets to a pod that are lost, all or some, or late
//	delay.go  the queue in which packets are late
//	link.go   the link between a node and the underlay
package fault

import "time"

// Kind is what is wrong with a pod or a node.
type Kind string

// The faults of pods.
const (
	Unready Kind = "unready" // not ready, whatever its probes say
	Silent  Kind = "silent"  // nothing reaches it; nobody is told
	Slow    Kind = "slow"    // what reaches it is late by Delay
	Lossy   Kind = "lossy"   // LossPercent of what is sent to it are lost
)

// The faults of nodes.
const (
	Power     Kind = "power"     // everything stops at once; nobody is told
	Link      Kind = "link"      // the link goes down, as the node sees
	Partition Kind = "partition" // nothing passes the link, which stays up
)

// Delay is how late packets to a slow pod are.
const Delay = 500 * time.Millisecond

// LossPercent is the share of the packets to a lossy pod that are lost.
const LossPercent = 30

// Pods and Nodes are the faults of each, in the order in which they are explained.
var (
	Pods  = []Kind{Unready, Silent, Slow, Lossy}
	Nodes = []Kind{Power, Link, Partition}
)
