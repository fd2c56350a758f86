// Package hook drives any other load balancer: it hands the full desired state of
// some Services, with what has changed, to a command, a URL, a template or a DNS
// server, again and again until that has worked. Changes that come together
// are merged, and one of several processes does the work.
//
//	state.go     the state that is handed on, and its JSON
//	build.go     API objects to state
//	change.go    what changed between two states
//	collect.go   the watches
//	hook.go      the loop: merge, deliver, retry
//	target.go    what takes a state
//	exec.go, webhook.go, template.go, funcs.go, dns.go   the targets
//	answer.go    what a target says: addresses for the status, and failures
//	events.go    whom is told of failures
package hook
