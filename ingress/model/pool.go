package model

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"
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
	Eject   *Eject // nil asks endpoints that fail like others
	Invalid string // why it can't be used though it has endpoints: the answer is 502
}

// Eject says when an endpoint that fails gets no requests for a while. Half of a pool's
// endpoints get requests in any case.
type Eject struct {
	Errors int           // in a row
	Share  int           // of the requests of EjectWindow, in percent, if there are EjectLeast; 0 is none
	For    time.Duration // the first time; then twice as long each time
	Most   time.Duration
}

// What a share is a share of.
const (
	EjectWindow = 10 * time.Second
	EjectLeast  = 20 // requests
)

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
	Key        string // as Sign makes it: differs where anything else does
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

// Sign sets Key by what is in all other fields: a certificate that is renewed under its
// name, or an authority that goes, is another key.
func (t *BackendTLS) Sign() {
	h := sha256.New()
	part := func(b []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(b)))
		_, _ = h.Write(length[:])
		_, _ = h.Write(b)
	}
	list := func(texts []string) {
		part([]byte(strconv.Itoa(len(texts))))
		for _, s := range texts {
			part([]byte(s))
		}
	}
	list([]string{t.ServerName, strconv.FormatBool(t.Insecure), strconv.FormatBool(t.Roots == nil)})
	list(t.Names)
	list(t.URIs)
	for _, c := range t.Authorities {
		part(c.Raw)
	}
	if t.Certificate != nil {
		part(nil)
		for _, c := range t.Certificate.Certificate {
			part(c)
		}
	}
	t.Key = hex.EncodeToString(h.Sum(nil)[:16])
}
