// Package dns gives the Services of a cluster their names, as the Kubernetes
// DNS specification 1.1.0 has them (specification.md of kubernetes/dns).
//
// [Index] holds the records. It is fed from whatever watches Services and
// EndpointSlices already, and answers from compact maps. CoreDNS is the server
// around it, in which it is the plugin "fairway", before the cache: a
// [Corefile] says what else happens, as operators know it. [Address] puts the
// DNS Service's address on this machine, so that questions don't leave it.
package dns
