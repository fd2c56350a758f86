package model

import (
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Action is what a rule of a route does with the requests it matches.
type Action struct {
	Route string // "HTTPRoute namespace/name", for people
	Rule  string // the rule's name or number

	Request  HeaderEdit
	Response HeaderEdit
	Redirect *Redirect
	Rewrite  *Rewrite
	Mirrors  []Mirror
	CORS     *CORS
	Backends []Backend

	Timeout        time.Duration // of the whole request; 0 is none
	BackendTimeout time.Duration // of one try
	ReadTimeout    time.Duration // of one try, as long as nothing comes or goes
	ConnectTimeout time.Duration // to one endpoint; 0 is the engine's own
	Retry          *Retry

	Allow     []netip.Prefix // clients let in; nil is all
	Deny      []netip.Prefix
	MaxBody   int64 // bytes; 0 is unlimited
	Limit     *Limit
	BasicAuth *BasicAuth
	Auth      *Auth
	Affinity  *Affinity
	Errors    *Errors
	AnyOf     bool // a client of Allow needs no name and password, nor Auth's leave, and who has that may be any
	Identity  *Identity
	Rate      *Rate
	Unlogged  bool   // the request isn't in the access log
	Untraced  bool   // nor in a trace
	Fallback  string // pool that is asked where a backend has no endpoint; "" is none
	// RequireHTTPS is the status of the redirect for clients that came by http; 0 serves
	// them.
	RequireHTTPS int
	Answer       int // status that the gateway answers itself; 0 is none

	Invalid    string // why nothing of it can be done: the answer is 500
	Unroutable bool   // no backend is named at all: the answer is 500
}

// Backend is a pool and the share of requests it gets.
type Backend struct {
	Pool     string // name of a pool; "" if Invalid
	Weight   int
	Request  HeaderEdit
	Response HeaderEdit
	Redirect *Redirect
	Rewrite  *Rewrite
	Mirrors  []Mirror
	CORS     *CORS
	Invalid  string // why there is no pool: the answer is 500
}

// doesAs reports whether another rule would do the same with a request, however it
// was found.
func (r *Rule) doesAs(o *Rule) bool {
	a, b := r.Action, o.Action
	if a == b {
		return true
	}
	x, y := *a, *b
	x.Route, x.Rule, y.Route, y.Rule = "", "", "", ""
	return reflect.DeepEqual(&x, &y) && (!a.editsPath() || r.Match.Path == o.Match.Path && r.Match.Kind == o.Match.Kind)
}

// editsPath reports whether what the action does to the path depends on the match.
func (a *Action) editsPath() bool {
	edits := func(d *Redirect, r *Rewrite) bool { return d != nil && d.Path != nil || r != nil && r.Path != nil }
	return edits(a.Redirect, a.Rewrite) || slices.ContainsFunc(a.Backends, func(b Backend) bool { return edits(b.Redirect, b.Rewrite) })
}

// HeaderEdit changes headers: set, add, then remove.
type HeaderEdit struct {
	Set, Add []Header
	Remove   []string
	Replace  []Replacement
}

// Replacement has a value that begins with From begin with To: a Location, or the
// attribute Path of cookies. The attribute Domain is From as a whole.
type Replacement struct{ Name, From, To string }

// Header is a name in canonical form, and a value.
type Header struct{ Name, Value string }

// Names are the headers that it changes.
func (e *HeaderEdit) Names() []string {
	var names []string
	for _, h := range slices.Concat(e.Set, e.Add) {
		names = append(names, h.Name)
	}
	return append(names, e.Remove...)
}

// Redirect sends the client elsewhere. What is empty stays as it was.
type Redirect struct {
	Scheme string
	Host   string
	Path   *PathEdit
	Port   uint16 // 0: the scheme's own if Scheme is given, the listener's if not
	Status int
	Whole  string // the whole Location, or all behind the host if it begins with a slash
	// Variables has Whole be a text with variables; see [Request.Expand]. $1 is what the
	// rule's regular expression has caught.
	Variables bool
	// Relative leaves scheme and host out of the Location.
	Relative bool
}

// Location is where a request is sent; port is the one that clients connect to.
func (d *Redirect) Location(r *Request, m *Match, port uint16) string {
	whole := d.Whole
	if d.Variables {
		whole = r.expand(whole, m)
	}
	if whole != "" && !strings.HasPrefix(d.Whole, "/") {
		return whole
	}
	scheme, host, path := r.scheme(), r.Host, r.Path
	if (scheme == "https") != r.TLS { // the client's port is a proxy's
		port = 0
	}
	if d.Scheme != "" {
		scheme, port = d.Scheme, 0
	}
	if d.Port != 0 {
		port = d.Port
	}
	if d.Host != "" {
		host = d.Host
	}
	if d.Path != nil {
		path = d.Path.Apply(path, m)
	}
	if port != 0 && (scheme != "http" || port != 80) && (scheme != "https" || port != 443) {
		host += ":" + strconv.Itoa(int(port))
	}
	switch {
	case whole != "":
		path = whole
	case r.RawQuery != "":
		path += "?" + r.RawQuery
	}
	if d.Relative {
		return path
	}
	return scheme + "://" + host + path
}

// Rewrite changes what the backend is asked for.
type Rewrite struct {
	Host string // "" leaves it
	Path *PathEdit
}

// Mirror sends a copy of a share of requests to a pool; its answers count for nothing.
type Mirror struct {
	Pool                   string
	Numerator, Denominator int
	Host                   string // that copies have; "" is the request's own
	Bodiless               bool   // copies have no body
}

// CORS says which origins' scripts may ask, and how.
type CORS struct {
	Origins     []string // "*" for all; "https://*.example.com"
	Credentials bool
	Methods     []string
	Headers     []string
	Expose      []string
	MaxAge      int // seconds
	// Literal is what ingress-nginx does. Where any origin may ask, all are told "*" with
	// credentials, too, and also who names none; browsers then send no credentials. An
	// asterisk in a name stands for one label, and every OPTIONS of an origin that may ask
	// is answered. Without it, the origin is named, and an asterisk stands for any labels.
	Literal bool
}

// Retry says which answers are asked for again, elsewhere if possible.
type Retry struct {
	Codes    []int
	Attempts int // after the first; 0 is none, whatever became of it
	Backoff  time.Duration
	// Connection has requests tried again when the connection fails. Those that were sent
	// are if they do no more harm twice than once (RFC 9110, 9.2.2).
	Connection bool
	Late       bool // and when an endpoint takes too long
	// Idempotent has requests that may do harm twice tried again only if nothing of them
	// was sent, whatever the answer.
	Idempotent bool
	Within     time.Duration // after which no other try begins; 0 is none
}

// Limit bounds what one client may ask.
type Limit struct {
	Of          string  // whose limit it is: all rules that have it count together
	PerSecond   float64 // requests
	Burst       int
	Connections int            // requests at a time
	Except      []netip.Prefix // clients that may ask any number
}

// BasicAuth asks for a name and password (RFC 7617).
type BasicAuth struct {
	Realm string
	Users map[string]string // name to hash, as htpasswd writes it
}

// Auth has another server say whether a request is let in: one like it, without its
// body, must be answered by a status of 200 to 299.
type Auth struct {
	URL     string
	Pool    string // that has the server's endpoints; "" looks for the URL's host
	Method  string
	Headers []string // of its answer, that the backend gets
	Request []Header // that it gets; values may have variables, see [Request.Expand]
	SignIn  string   // where clients go that it answers 401; "" hands that on
	Param   string   // of that address: where the client wanted to
	Cookies bool     // of its answer are the client's, whatever the endpoint answers
}

// Errors has a pool answer in the place of backends whose answers, or whose lack of
// one, have these codes.
type Errors struct {
	Codes  []int
	Pool   string
	Header []Header // that the pool's endpoints get
}

// Identity is what a client's certificate is asked for.
type Identity struct {
	Subject *regexp.Regexp // of its subject's name (RFC 4514), or 403; nil is any
	Whole   bool           // endpoints get the certificate, besides the names in it
}

// Rate bounds how fast an answer is sent.
type Rate struct {
	PerSecond int64 // bytes
	After     int64 // that are sent at once
}

// Affinity keeps a client with an endpoint by means of a cookie, and so with one of
// several backends.
type Affinity struct {
	Cookie string
	Header string // in canonical form, in the place of a cookie; "" is a cookie
	Loose  bool   // the backend is drawn for each request nonetheless
	Keep   bool   // the cookie stays when another endpoint has answered, as long as its own is there
	// Known leaves SameSite=None out for browsers that read it as Strict.
	Known    bool
	Path     string
	Domain   string
	MaxAge   int // seconds; 0 is as long as the browser runs
	Secure   bool
	SameSite string
	ByClient bool // by the client's address instead; no cookie is set
}

// SetCookie is the Set-Cookie field that keeps a client with the endpoint that a
// value stands for.
func (a *Affinity) SetCookie(value string) string {
	c := http.Cookie{Name: a.Cookie, Value: value, Path: a.Path, Domain: a.Domain, MaxAge: a.MaxAge, Secure: a.Secure, HttpOnly: true}
	if c.Path == "" {
		c.Path = "/"
	}
	switch a.SameSite {
	case "Lax":
		c.SameSite = http.SameSiteLaxMode
	case "Strict":
		c.SameSite = http.SameSiteStrictMode
	case "None":
		c.SameSite = http.SameSiteNoneMode
	}
	return c.String()
}
