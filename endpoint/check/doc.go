// Package check finds out whether endpoints answer. It reads what a check is
// (Spec), asks an endpoint once (Prober), judges the answers over time (State)
// and keeps ten thousand such checks going with one timer (Scheduler). It knows
// addresses and answers, not Services or Kubernetes.
//
//	spec.go       the text of a check, such as http:/healthz
//	settings.go   interval, timeout, rise, fall, expected answer
//	allow.go      addresses that are never asked on behalf of others
//	result.go     what one answer means
//	state.go      healthy or not, from a series of answers
//	scheduler.go  when each endpoint is asked
//	prober.go     one question: which prober answers for which kind
//	connect.go    connections that end without a trace
//	http.go, stream.go, datagram.go, grpc.go, exec.go, unit.go   the kinds
package check
