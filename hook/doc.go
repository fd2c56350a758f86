// Package hook drives other load balancers. It passes the full desired state of
// some Services, with the changes, to a command, a URL, a template or a DNS
// server, and tries again until that succeeds. Changes that come together are
// merged. Of several processes one does the work.
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
