// Package agentlink is the way to the agents of this machine: a small HTTP API in
// JSON on a unix socket that only root may use. It reports what an agent knows
// and has done. It changes nothing, and costs nothing while nobody asks.
//
//   - api.go: what is asked and answered
//   - server.go: the agent's end
//   - client.go: the end of explain, doctor and dump
//   - find.go: which agents there are on this machine
//
// Paths begin with the version, /v1. Fields are only ever added to it. An agent
// that lacks what is asked for says which version it is.
package agentlink
