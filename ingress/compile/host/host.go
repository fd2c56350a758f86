// Package host settles what holds for each host of Ingresses, of which several may
// name one. The oldest that has a path of the host is its owner. The owner decides
// the certificate, which clients are let in, whether TLS passes through, redirects
// and other names of the host; what it leaves open, others of its namespace may
// settle, the oldest first. Objects of other namespaces may add paths. What else they
// ask for is refused, and they are told.
package host

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/model"
)

// Redirect is whether requests over HTTP are sent to HTTPS.
type Redirect uint8

// What may be said of redirects.
const (
	Unsaid  Redirect = iota // as WithTLS
	Never                   // ssl-redirect: "false"
	WithTLS                 // if the host has a certificate
	Always
)

// Claim is what one object says of a host.
type Claim struct {
	By    types.NamespacedName
	Host  string // in lower case; "" is any, "*.example.com" what is one label longer
	Paths bool   // it has a path of the host, and not only a certificate for it

	Certificate *tls.Certificate
	For         string                  // hostname for which the object has the certificate, which covers Host
	Clients     *model.ClientValidation // nil lets all in
	Identity    *model.Identity         // which names those clients must have, and what endpoints are told of them
	Closed      string                  // why nobody may be let in: what protects can't be read
	Passthrough bool
	WWW         bool // the name with www., or the one without, leads here
	Aliases     []string
	Redirect    Redirect
	Regexp      bool // paths are regular expressions
}

// Record is what holds for a host.
type Record struct {
	Claim                       // what holds; By is the owner
	Issuer types.NamespacedName // of the certificate
}

// Refusal is something that an object says of a host and that doesn't hold.
type Refusal struct {
	By    types.NamespacedName
	What  string // "the certificate", ...
	Owner types.NamespacedName
}

// Settle settles what holds for a host. Claims are all those of the host, at least one,
// in order of precedence.
func Settle(claims []Claim) (*Record, []Refusal) {
	owner := max(0, slices.IndexFunc(claims, func(c Claim) bool { return c.Paths }))
	r := &Record{Claim: Claim{By: claims[owner].By, Host: claims[owner].Host}}
	rank := func(c *Claim) int {
		switch {
		case c.By == r.By:
			return 0
		case c.By.Namespace == r.By.Namespace:
			return 1
		}
		return 2
	}
	claims = slices.Clone(claims)
	slices.SortStableFunc(claims, func(a, b Claim) int { return cmp.Compare(rank(&a), rank(&b)) })
	r.certificate(claims)
	var refused []Refusal
	for i := range claims {
		c := &claims[i]
		what := r.foreign(c)
		if rank(c) < 2 {
			what = r.take(c)
		}
		for _, w := range what {
			refused = append(refused, Refusal{By: c.By, What: w, Owner: r.By})
		}
	}
	return r, refused
}

// certificate chooses that of the owner's namespace that is for the host itself, or
// the first that covers it.
func (r *Record) certificate(claims []Claim) {
	for _, exact := range []bool{true, false} {
		for i := range claims {
			c := &claims[i]
			if c.Certificate != nil && c.By.Namespace == r.By.Namespace && exact == (c.For == r.Host) {
				r.Certificate, r.For, r.Issuer = c.Certificate, c.For, c.By
				return
			}
		}
	}
}

// take has what the owner's namespace says hold, and returns what doesn't: something
// else holds already.
func (r *Record) take(c *Claim) (refused []string) {
	if c.Certificate != nil && c.For == r.Host && !SameCertificate(c.Certificate, r.Certificate) {
		refused = append(refused, "the certificate")
	}
	switch {
	case c.Clients != nil && r.Clients == nil:
		r.Clients, r.Identity = c.Clients, c.Identity
	case c.Clients != nil && !SameClients(c.Clients, r.Clients):
		refused = append(refused, "which clients are let in (auth-tls-secret)")
	case c.Clients != nil && !SameNames(c.Identity, r.Identity):
		refused = append(refused, "the names of clients' certificates (auth-tls-match-cn)")
	}
	r.Closed = cmp.Or(r.Closed, c.Closed)
	switch {
	case c.Passthrough && c.Paths && (r.Certificate == nil || c.By == r.By):
		r.Passthrough = true
	case c.Passthrough:
		refused = append(refused, "ssl-passthrough")
	}
	r.WWW = r.WWW || c.WWW
	r.Aliases = append(r.Aliases, c.Aliases...)
	if r.Redirect == Unsaid && (c.By == r.By || c.By == r.Issuer) { // others say it of their own paths
		r.Redirect = c.Redirect
	}
	r.Regexp = r.Regexp || c.Regexp && c.Paths
	r.Paths = r.Paths || c.Paths
	return refused
}

// foreign lists what an object of another namespace says and what doesn't hold.
func (r *Record) foreign(c *Claim) (refused []string) {
	for _, x := range []struct {
		what string
		said bool
	}{
		{"the certificate", c.Certificate != nil && c.For == c.Host && !SameCertificate(c.Certificate, r.Certificate)},
		{"which clients are let in (auth-tls-secret)", c.Closed != "" || c.Clients != nil && !SameClients(c.Clients, r.Clients)},
		{"ssl-passthrough", c.Passthrough && !r.Passthrough},
		{"from-to-www-redirect", c.WWW && !r.WWW},
		{"server-alias", len(c.Aliases) > 0},
		{"ssl-redirect", c.Redirect != Unsaid && c.Redirect != r.Redirect && (c.Redirect != WithTLS || r.Redirect != Unsaid) && c.Paths},
	} {
		if x.said {
			refused = append(refused, x.what)
		}
	}
	return refused
}

// SameCertificate reports whether two certificates are one, perhaps of two Secrets.
func SameCertificate(a, b *tls.Certificate) bool {
	return a == b || a != nil && b != nil && slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// SameNames reports whether two let in clients of the same names.
func SameNames(a, b *model.Identity) bool {
	pattern := func(i *model.Identity) string {
		if i == nil || i.Subject == nil {
			return ""
		}
		return i.Subject.String()
	}
	return pattern(a) == pattern(b)
}

// SameClients reports whether two let in the same clients.
func SameClients(a, b *model.ClientValidation) bool {
	return a == b || a != nil && b != nil && a.Optional == b.Optional && a.Roots.Equal(b.Roots)
}
