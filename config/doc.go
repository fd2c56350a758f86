// Package config holds the typed configuration of each role of the binary: its
// flags with their defaults, and the one place where they are validated. What a
// command line sets is in fields of the types that the roles take.
//
//	roles.go      the defaults of agent, join and up
//	agent.go      Agent: a node's agent, alone or beside an API server
//	agentflags.go its flags
//	load.go       an agent of kube-proxy's flags and configuration file, too
//	dns.go        DNS: the cluster's names, alone or in an agent
//	gateway.go    Gateway: an engine for Gateways and Ingresses
//	addresses.go  Addresses: the addresses of load balancers, and certificates
//	server.go     Server and Up: an API server, alone or with the rest
//	token.go      how a command that joins is given a token
//	verbosity.go  how much libraries log
//	values.go     values of flags: addresses, ranges of addresses
//
// Below it, kubeproxy knows kube-proxy's file and flags.
package config
