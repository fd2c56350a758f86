// Package trace reports on one real connection: what each rule of a node did with it,
// who made that rule, and what became of the connection. It is pure: the kernel's
// trace of packets, and how the connection ended for its client, go in; a report
// comes out.
//
//   - report.go: the report
//   - packet.go: the steps of a packet
//   - node.go, nodewatch.go: what another node does for a trace; the only part that is not pure
//   - owner.go: whose rules they are
//   - answer.go: the one line that answers
//   - text.go: the report for people
package trace
