// Package compare measures this project's DNS server beside CoreDNS with its
// kubernetes plugin, which it is to beat: its test has both, each a process of
// its own, answer for the same 10,000 Services of the same API server. The
// program itself links no such plugin.
package compare
