// Package services has the commands for people with machines and processes: expose, publish, ls, status. Each file says what its command parses and
// what it calls.
package services
