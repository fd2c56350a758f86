// Package requests has the commands of Gateways and Ingresses. Each file says what its command parses and
// what it calls.
package requests
