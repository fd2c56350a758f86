// Package health is what health checks of endpoints mean, for the agents that
// ask and for the controller that writes the result. It is pure.
//
// A Service, or an EndpointSlice, asks for checks by annotations. Only endpoints
// without a Pod are checked: pods have a kubelet. The agent of the endpoint's
// machine asks; where there is none, up to three nodes do (Checkers). Each node
// reports what it found in EndpointSlices of its own that belong to no Service
// (Report). The controller counts the votes and writes the endpoint's `ready`
// (Decide).
//
//	wish.go      annotations to a check
//	target.go    which endpoints are checked, at which port
//	checkers.go  which nodes check an endpoint
//	report.go    what a node found, as EndpointSlices
//	decide.go    votes to conditions
package health
