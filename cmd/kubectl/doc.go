//go:build !agentonly

// Package kubectl is the built-in kubectl. Each file says what its command parses and
// what it calls.
package kubectl
