// Package model says what becomes of a request: which listener takes it, which
// rule of which route, what is changed in it, and who may answer. It knows no
// API objects; ingress/compile decides what they mean. [Table.Decide] is the
// executable specification that every engine must agree with.
//
//	table.go   sockets, listeners, hosts, rules
//	match.go   what a rule matches
//	action.go  what a rule does
//	pool.go    who answers
//	decide.go  from a request to a decision
//	trace.go   why not the other rules
//	path.go    paths: prefixes, rewriting
package model

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
)

// Table is everything that an engine serves. It is never changed once made; a
// new table shares with the one before what is the same.
type Table struct {
	Sockets []*Socket
	// Pools by name; rules refer to them by name, so that a change of endpoints
	// changes no rule.
	Pools map[string]*Pool
	// Challenges are answered before anything else; nil if there are none.
	Challenges *Challenges
}

// Challenges are what a certificate authority looks for to see that a host is ours
// (ACME).
type Challenges struct {
	Tokens       map[string]string           // answers over HTTP (RFC 8555, 8.3)
	Certificates map[string]*tls.Certificate // by host, for the protocol acme-tls/1 (RFC 8737)
	// At are the Gateways ("namespace/name", with spaces between) that alone answer, by token
	// or host; any does where there is none. A host is the one's to whose address it leads.
	At map[string]string
}

// Are reports whether challenges of a token or a host are to be answered at a socket.
func (c *Challenges) Are(tokenOrHost, socket string) bool {
	at := c.At[tokenOrHost]
	return at == "" || slices.ContainsFunc(strings.Fields(at), func(g string) bool { return strings.HasPrefix(socket, g+":") })
}

// ChallengePath is where tokens are looked for.
const ChallengePath = "/.well-known/acme-challenge/"

// Answer is what is found at a path of a socket, if it is a challenge's.
func (c *Challenges) Answer(path, socket string) (string, bool) {
	token, found := strings.CutPrefix(path, ChallengePath)
	if c == nil || !found || !c.Are(token, socket) {
		return "", false
	}
	text, known := c.Tokens[token]
	return text, known
}

// Socket is a port that clients connect to. Its name is unique in a table.
type Socket struct {
	Name      string // "namespace/gateway:port", for people and to tell sockets apart
	Port      uint16 // as clients see it
	Bind      netip.AddrPort
	TLS       bool
	HTTP3     bool        // requests over TLS may come by HTTP/3, at the UDP port beside
	OneLabel  bool        // an asterisk stands for one label, as in an Ingress; for one or more, if not
	Listeners []*Listener // the most specific hostname first

	byHostname map[string]*Listener // see Index; nil if there are few
}

// Mode is what is done with a connection.
type Mode uint8

// The modes.
const (
	HTTP        Mode = iota // requests, by rule; over TLS if the socket has it
	Terminate               // TLS ends here, what is in it goes on as bytes
	Passthrough             // TLS goes on as it is
)

// String names the mode.
func (m Mode) String() string {
	return [...]string{"http", "terminate", "passthrough"}[m]
}

// Listener is a part of a socket, told from others by hostname: of the TLS
// server name where there is TLS, of the Host header where there isn't.
type Listener struct {
	Name         string // "namespace/gateway/listener"
	Hostname     string // "" is any, "*.example.com" all below
	Mode         Mode
	Certificates []*tls.Certificate
	Clients      *ClientValidation // nil asks clients for no certificate
	hosts        hosts
}

// ClientValidation says which certificates clients must have.
type ClientValidation struct {
	Roots *x509.CertPool
	// Authorities are those of Roots, for engines that can't read a pool.
	Authorities []*x509.Certificate
	// Optional lets clients in that have none, or one that isn't valid.
	Optional bool
}

// hosts finds rules by hostname.
type hosts struct {
	all   []*Host // the most specific first
	exact map[string]*Host
	wild  map[string]*Host // by what follows the asterisk: ".example.com", or "" for any
}

// Host has the rules for a hostname, in the order in which they are tried.
type Host struct {
	Hostname string // as in Listener
	Rules    []*Rule
}

// Rule is one match of a rule of a route.
type Rule struct {
	Match  Match
	Action *Action
}

// SetHosts gives the listener its hosts. Hostnames are in lower case, each once.
func (l *Listener) SetHosts(list []*Host) {
	slices.SortFunc(list, func(a, b *Host) int { return CompareHostnames(a.Hostname, b.Hostname) })
	l.hosts = hosts{all: list, exact: map[string]*Host{}, wild: map[string]*Host{}}
	for _, h := range list {
		if suffix, wild := wildcard(h.Hostname); wild {
			l.hosts.wild[suffix] = h
		} else {
			l.hosts.exact[h.Hostname] = h
		}
	}
}

// Hosts are the listener's, the most specific first.
func (l *Listener) Hosts() []*Host { return l.hosts.all }

// each calls f for every host that a name belongs to, the most specific first,
// until f returns true.
func (s *hosts) each(name string, oneLabel bool, f func(*Host) bool) {
	if h := s.exact[name]; h != nil && f(h) {
		return
	}
	for rest := name; ; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			break
		}
		if i > 0 || len(rest) < len(name) { // an asterisk stands for a label at least
			if h := s.wild[rest[i:]]; h != nil && f(h) {
				return
			}
			if oneLabel {
				break
			}
		}
		rest = rest[i+1:]
	}
	if h := s.wild[""]; h != nil {
		f(h)
	}
}

// wildcard returns what follows the asterisk of a hostname that stands for many.
func wildcard(hostname string) (suffix string, ok bool) {
	if hostname == "" {
		return "", true
	}
	return strings.CutPrefix(hostname, "*")
}

// Covers reports whether a name is among those a hostname stands for.
func Covers(hostname, name string) bool {
	suffix, wild := wildcard(hostname)
	if !wild {
		return hostname == name
	}
	return strings.HasSuffix(name, suffix) && len(name) > len(suffix) || hostname == ""
}

// covers is [Covers] as the socket reads asterisks.
func (s *Socket) covers(hostname, name string) bool {
	return Covers(hostname, name) && (!s.OneLabel || isOneLabel(hostname, name))
}

// isOneLabel reports whether what a hostname's asterisk stands for in a name, if it
// has one, is one label. Where it stands alone, it stands for any name.
func isOneLabel(hostname, name string) bool {
	suffix, wild := wildcard(hostname)
	return !wild || suffix == "" || !strings.Contains(strings.TrimSuffix(name, suffix), ".")
}

// CompareHostnames puts the more specific hostname first: names before
// wildcards, longer ones before shorter ones.
func CompareHostnames(a, b string) int {
	_, wildA := wildcard(a)
	_, wildB := wildcard(b)
	switch {
	case wildA != wildB && wildA:
		return 1
	case wildA != wildB:
		return -1
	case len(a) != len(b):
		return len(b) - len(a)
	}
	return strings.Compare(a, b)
}

// Intersect returns the hostname that stands for what two have in common.
func Intersect(a, b string) (hostname string, ok bool) {
	suffixA, wildA := wildcard(a)
	suffixB, wildB := wildcard(b)
	switch {
	case a == "":
		return b, true
	case b == "":
		return a, true
	case wildA && wildB && strings.HasSuffix(suffixB, suffixA):
		return b, true
	case wildA && wildB && strings.HasSuffix(suffixA, suffixB):
		return a, true
	case !wildA && Covers(b, a):
		return a, true
	case !wildB && Covers(a, b):
		return b, true
	}
	return "", false
}
