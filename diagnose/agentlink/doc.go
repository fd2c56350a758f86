// Package agentlink is the way to an agent: a small HTTP API in JSON on a unix socket
// that only root may use, and, on machines that joined a cluster of Fairway's own API
// server, on a port that only that server may use. It reports what an agent knows
// and has done. It changes nothing, and costs nothing while nobody asks.
//
//   - api.go: what is asked and answered
//   - server.go: the agent's end
//   - client.go: the end of explain, doctor and dump
//   - flows.go, trace.go, probe.go: what is told line by line, and what sends packets
//   - port.go: the port for API servers
//   - find.go: which agents there are on this machine
//
// Paths begin with the version, /v1. Fields are only ever added to it. An agent
// that lacks what is asked for says which version it is.
package agentlink
