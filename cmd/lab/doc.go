//go:build !agentonly

// Package lab has the commands of the lab. Each file says what its command parses and
// what it calls.
package lab
