package model

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
)

// Protocol is how an endpoint is spoken to.
type Protocol uint8

// The protocols.
const (
	HTTP1 Protocol = iota
	H2C            // HTTP/2 without TLS
	HTTP2          // HTTP/2 over TLS if the endpoint has it (ALPN), HTTP/1.1 if not
)

// Pool is who answers requests: the ready endpoints of a Service's port.
type Pool struct {
	Name      string // "namespace/service:port"
	Protocol  Protocol
	TLS       *BackendTLS // nil is plain
	Endpoints []Endpoint
	Algorithm Algorithm
	// Proxy is which version of the PROXY protocol connections to endpoints begin
	// with. Each is then one client's, and of HTTP/1.1 if it is of HTTP.
	Proxy   ProxyVersion
	Invalid string // why it can't be used though it has endpoints: the answer is 502
}

// ProxyVersion is one of the PROXY protocol.
type ProxyVersion uint8

// The versions.
const (
	ProxyNone ProxyVersion = iota
	ProxyV1                // a line of text
	ProxyV2                // binary
)

// Algorithm is how an endpoint is chosen.
type Algorithm uint8

// The algorithms.
const (
	RoundRobin Algorithm = iota
	LeastRequests
	Source // by the client's address
)

// Endpoint is one of a pool.
type Endpoint struct {
	Addr   netip.AddrPort
	Weight int
}

// BackendTLS is how endpoints are known. It is compared by Key.
type BackendTLS struct {
	Key        string // differs where anything else does
	ServerName string
	Roots      *x509.CertPool // nil is the system's
	// Authorities are those of Roots, for engines that can't read a pool.
	Authorities []*x509.Certificate
	// Names and URIs, if any, of which the certificate must have one, instead of
	// ServerName.
	Names, URIs []string
	Certificate *tls.Certificate // ours, for who asks
	Insecure    bool             // any certificate will do
}
