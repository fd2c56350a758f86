// Package check keeps health checks of endpoints without a pod: what a Service or an
// EndpointSlice asks for by annotations, which nodes ask, how an endpoint is asked, what a
// node reports, and what the reports of all mean.
//
// Pods have a kubelet, so only endpoints without a pod are checked. The agent of the
// endpoint's machine asks; where there is none, up to three nodes do (Nodes.Checkers).
// Each node reports what it found in EndpointSlices of its own that belong to no Service
// (Reports). The controller counts the votes (Decide) and writes the endpoint's `ready`.
//
// Asking knows addresses and answers only, and keeps ten thousand checks going with one
// timer:
//
//	spec.go       the text of a check, such as http:/healthz
//	settings.go   interval, timeout, rise, fall, expected answer
//	allow.go      addresses that are never asked on behalf of others
//	result.go     what one answer means
//	state.go      healthy or not, from a series of answers
//	scheduler.go  when each endpoint is asked
//	places.go     how many checks of one tenant run at a time
//	prober.go     one question: which prober answers for which kind
//	connect.go    connections that end without a trace
//	http.go, stream.go, datagram.go, grpc.go, exec.go, unit.go   the kinds
//
// What checks mean is pure:
//
//	wish.go       annotations to a check
//	endpoint.go   which endpoints are checked, at which port
//	checkers.go   which nodes check an endpoint
//	report.go     what a node found, as EndpointSlices
//	decide.go     votes to conditions
//	conditions.go the conditions and marks of a checked EndpointSlice
//
// An agent runs a Checker, to which it hands every Service and EndpointSlice that it hears
// of. Where none asks for checks, nothing runs and nothing more is watched:
//
//	checker.go  what the agent hands on
//	input.go    what is kept of Services, EndpointSlices and Nodes
//	plan.go     which endpoints this node checks
//	reports.go  what is written
//	metrics.go  what /metrics shows
package check
