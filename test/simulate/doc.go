// Package simulate runs whole links of announcers (announce/core) on a clock of its own. From one
// seed come the machines and all that happens to them: frames that are lost, late, doubled or cut
// in one direction, agents that are stopped, killed and started with a clock that was set, machines
// without power, keys that are rotated, machines of others that have an address, and frames that
// somebody sends once more. At every event it is looked at what must always be so.
//
//	world.go      the clock, the link, and what is to come
//	machine.go    a machine: its agent, as announce/l2 has it, and the kernel, which answers also without one
//	carry.go      what an agent's decisions do
//	flows.go      connections of clients
//	others.go     machines that are none of the cluster's
//	keys.go       the cluster's keys, which are rotated
//	disturb.go    what happens
//	invariants.go what must always be so
//	run.go        a seed from its beginning to its end
//
// What is simulated are the decisions, and the frames as bytes. Kernels and clients are models.
package simulate
