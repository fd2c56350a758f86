// Package doctor finds out why a Service doesn't answer. It is pure: evidence
// goes in, findings with stable codes come out.
//
//   - catalogue.go: the causes that it knows, each with a code, a meaning, a fix
//   - evidence.go: what the checks look at
//   - byapi.go: a Service by what the API says alone
//   - checks.go: the one list of checks, in the order of a packet's way
//   - selector.go, ports.go, policy.go, node.go, reach.go, names.go, client.go, way.go:
//     the checks
//   - report.go: the report and its text; survey.go: that of many Services
//   - outcomes.go: findings one by one, for other programs; sarif.go and junit.go: in their
//     formats
//
// A finding is proved (objects contradict each other, or a packet died there),
// likely (objects and host look wrong), or a note. The first broken link of the
// chain suppresses the checks of what follows from it.
package doctor
