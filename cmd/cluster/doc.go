// Package cluster has the commands of servers and machines: up, server, join, leave, token, certs, install. Each file says what its command parses and
// what it calls.
package cluster
