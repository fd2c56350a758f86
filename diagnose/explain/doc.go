// Package explain says what happens to a packet to a Service, and why. It is
// pure: a question, what a node makes of it and the API's objects go in, a report
// comes out.
//
//   - question.go: what is asked: which address, from whom
//   - decision.go: what one node's table says of an address, with a reason for
//     every endpoint
//   - objects.go: the API objects that give names and conditions to addresses
//   - gather.go: decisions of nodes, compiled from the objects
//   - report.go: the report, as JSON and YAML have it
//   - assemble.go: the report from decisions and objects
//   - kernel.go: what the kernels of nodes hold of the Service
//   - text.go: the report for people
//   - rules.go: each decision step by step
package explain
