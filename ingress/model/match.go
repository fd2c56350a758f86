package model

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// PathKind says how a path is compared.
type PathKind uint8

// The kinds, the ones that are tried first being first.
const (
	PathExact  PathKind = iota
	PathRegexp          // anchored at both ends
	PathPrefix          // by whole elements: /a is a prefix of /a/b, not of /ab
)

// Match is what a request must have. The zero value matches every path that
// equals "".
type Match struct {
	Kind    PathKind
	Path    string
	Regexp  *regexp.Regexp // of Path, where Kind says so
	Method  string         // "" is any
	Headers []ValueMatch   // all of them
	Query   []ValueMatch   // all of them
}

// ValueMatch compares a value by name. Names of headers are in canonical form.
type ValueMatch struct {
	Name   string
	Value  string
	Regexp *regexp.Regexp // instead of Value if not nil
}

// Matches reports whether the request has what is asked for.
func (m *Match) Matches(r *Request) bool {
	if !m.matchesPath(r.Path) || m.Method != "" && m.Method != r.Method {
		return false
	}
	for i := range m.Headers {
		if !m.Headers[i].matchesHeader(r) {
			return false
		}
	}
	for i := range m.Query {
		if !r.has(&m.Query[i]) {
			return false
		}
	}
	return true
}

func (m *Match) matchesPath(path string) bool {
	switch m.Kind {
	case PathExact:
		return path == m.Path
	case PathRegexp:
		return m.Regexp.MatchString(path)
	}
	return HasPathPrefix(path, m.Path)
}

func (v *ValueMatch) matches(value string) bool {
	if v.Regexp != nil {
		return v.Regexp.MatchString(value)
	}
	return value == v.Value
}

func (v *ValueMatch) matchesHeader(r *Request) bool {
	values := r.Header[v.Name]
	switch {
	case v.Name == "Host":
		return v.matches(r.Host)
	case len(values) == 0:
		return false
	case len(values) == 1:
		return v.matches(values[0])
	}
	return v.matches(strings.Join(values, ",")) // RFC 9110, 5.3
}

// Compare puts the match that is tried first before the other, as Gateway API
// orders them; 0 leaves it to the age and name of the routes.
func (m *Match) Compare(o *Match) int {
	method := func(m *Match) int {
		if m.Method == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(m.Kind, o.Kind),
		cmp.Compare(len(o.Path), len(m.Path)),
		cmp.Compare(method(m), method(o)),
		cmp.Compare(len(o.Headers), len(m.Headers)),
		cmp.Compare(len(o.Query), len(m.Query)),
	)
}

// Request is what a decision is taken by.
type Request struct {
	TLS        bool
	Scheme     string // by which the client came, as a trusted proxy says; "" follows from TLS
	ServerName string // of TLS, in lower case
	Method     string
	Host       string // without port, in lower case
	Path       string // in normal form, as ingress/policy makes it
	Other      string // what Path may be read as by who takes an escaped slash for one; "" if nothing
	RawQuery   string
	Header     http.Header

	values url.Values // of RawQuery, once asked for
}

// scheme is the one by which the client came.
func (r *Request) scheme() string {
	switch {
	case r.Scheme != "":
		return r.Scheme
	case r.TLS:
		return "https"
	}
	return "http"
}

func (r *Request) query() url.Values {
	if r.values == nil {
		r.values, _ = url.ParseQuery(r.RawQuery) // what can't be read is not there
	}
	return r.values
}
