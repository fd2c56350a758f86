package compile

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/compile/host"
	"github.com/fairway-net/fairway/ingress/model"
)

// ingressHost is a host of Ingresses in the making.
type ingressHost struct {
	record  *host.Record
	claimed map[string]*ingressPath // by pathKey
	paths   []*ingressPath
}

// ingressPath is a path of a host.
type ingressPath struct {
	path    string
	kind    networkingv1.PathType
	action  *model.Action
	from    *ingressSource
	index   int
	canary  types.NamespacedName // the Ingress that has a share of its requests, if any
	special []specialRule        // requests that canaries get, or that they never get
}

// specialRule is what becomes of some requests for a path.
type specialRule struct {
	headers []model.ValueMatch
	action  *model.Action
}

// ingressSource is an Ingress as it was read.
type ingressSource struct {
	*route
	object *networkingv1.Ingress
	*annotations
	certificates map[string]*tls.Certificate // by host of spec.tls
}

// at is the host of that name.
func (in *ingresses) at(hostname string) *ingressHost {
	h := in.hosts[hostname]
	if h == nil {
		h = &ingressHost{record: &host.Record{Claim: host.Claim{Host: hostname}}, claimed: map[string]*ingressPath{}}
		in.hosts[hostname] = h
	}
	return h
}

// compileAll compiles Ingresses: first what holds for hosts, then paths, and canaries
// last, which need the others to be there.
func (c *compiler) compileAll(in *ingresses, list []*networkingv1.Ingress) (read []*ingressSource) {
	claims := map[string][]host.Claim{}
	for _, o := range byAge(list) {
		s := c.readIngress(in, o)
		read = append(read, s)
		for _, claim := range s.claims() {
			claims[claim.Host] = append(claims[claim.Host], claim)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		record, refused := host.Settle(claims[name])
		in.at(name).record = record
		in.certified = in.certified || record.Certificate != nil
		in.special = in.special || record.WWW || len(record.Aliases) > 0 || record.Clients != nil
		for _, r := range refused {
			c.problem("Ingress", r.By, ReasonConflict, fmt.Sprintf("host %q belongs to Ingress %s, which decides %s", name, r.Owner, r.What))
		}
	}
	for _, add := range []func(*ingresses, *ingressSource){c.ingressPaths, c.ingressDefaults, c.ingressCanary} {
		for _, s := range read {
			c.refs.resume(s.route)
			add(in, s)
			c.refs.end()
		}
	}
	for name := range claims {
		c.emit(in, name, read)
	}
	if c.options.TableOnly {
		for _, s := range read {
			in.keep(s.object)
		}
	}
	return read
}

// readIngress reads annotations and certificates.
func (c *compiler) readIngress(in *ingresses, o *networkingv1.Ingress) *ingressSource {
	s := &ingressSource{route: &route{kind: "Ingress", object: o}, object: o, certificates: map[string]*tls.Certificate{}}
	c.refs.begin(s.route)
	defer c.refs.end()
	s.annotations = c.annotations(o)
	if s.canary != nil { // it is its main Ingress in all else
		return s
	}
	for i, t := range o.Spec.TLS {
		named, err := c.ingressCertificate(o, t.SecretName)
		if err != nil {
			c.problem("Ingress", nameOf(o), ReasonInvalid, fmt.Sprintf("spec.tls[%d].secretName: %v", i, err))
		}
		in.files = in.files || t.SecretName == "" && !c.options.TableOnly // which only engines know
		hosts := t.Hosts
		if len(hosts) == 0 {
			hosts = []string{""}
		}
		for _, h := range hosts {
			h = strings.ToLower(h)
			if t.SecretName == "" {
				named = c.fileFor(h)
			}
			if s.certificates[h] == nil {
				s.certificates[h] = named
			}
		}
	}
	return s
}

// claims are what the Ingress says of hosts.
func (s *ingressSource) claims() []host.Claim {
	if s.canary != nil {
		return nil
	}
	paths := s.hostsWithPaths()
	names := maps.Clone(paths)
	for h := range s.certificates {
		names[h] = paths[h]
	}
	var list []host.Claim
	for name, has := range names {
		claim := host.Claim{
			By: s.name(), Host: name, Paths: has, Clients: s.clients, Identity: s.base.Identity, Closed: s.clientsClosed, Passthrough: s.passthrough && name != "",
			WWW: s.www && name != "" && !strings.HasPrefix(name, "*"), Redirect: s.redirect, Regexp: s.regexp,
		}
		if name != "" && has {
			claim.Aliases = s.aliases
		}
		for _, covering := range covering(name) {
			if pair := s.certificates[covering]; pair != nil {
				claim.Certificate, claim.For = pair, covering
				break
			}
		}
		list = append(list, claim)
	}
	return list
}

// covering are the hostnames of certificates that are good for a host, the best first.
func covering(name string) []string {
	list := []string{name}
	if i := strings.IndexByte(name, '.'); i > 0 && !strings.HasPrefix(name, "*") {
		list = append(list, "*"+name[i:])
	}
	if name != "" {
		list = append(list, "")
	}
	return list
}

// hostsWithPaths are the hosts of which the Ingress has paths. Those of any host are
// also those of the hosts that only spec.tls names.
func (s *ingressSource) hostsWithPaths() map[string]bool {
	out := map[string]bool{}
	if s.object.Spec.DefaultBackend != nil {
		out[""] = true
	}
	for _, r := range s.object.Spec.Rules {
		if r.HTTP != nil {
			out[strings.ToLower(r.Host)] = true
		}
	}
	if out[""] {
		for h := range s.certificates {
			out[h] = true
		}
	}
	return out
}

// tls is the record whose certificate a host has: its own, or one that covers it; nil
// if there is none.
func (in *ingresses) tls(name string) *host.Record {
	if h := in.hosts[name]; h != nil && h.record.Certificate != nil {
		return h.record
	}
	for _, covers := range covering(name)[1:] {
		if h := in.hosts[covers]; h != nil && h.record.Certificate != nil {
			if own := in.hosts[name]; own != nil && own.record.Clients != nil {
				both := *own.record
				both.Certificate = h.record.Certificate
				return &both
			}
			return h.record
		}
	}
	return nil
}

// listenerOf is the hostname of the listener that serves a host over TLS: its own, or
// that of the certificate, where hosts ask the same of clients.
func (in *ingresses) listenerOf(name string) string {
	record := in.tls(name)
	switch {
	case record == nil || record.Host == name && (record.Clients != nil || record.For == name):
		return name
	case record.Host != name: // another one's
		return in.listenerOf(record.Host)
	}
	if h := in.hosts[record.For]; h != nil && h.record.Certificate == record.Certificate && h.record.Clients == nil {
		return record.For
	}
	return name
}

// pathKey tells the paths of a host apart, as ingress-nginx does.
func pathKey(kind networkingv1.PathType, path string) string { return string(kind) + " " + path }

// emit makes the rules of a host of its paths. What no path has is the owner's default
// backend's, or nobody's: rules of a wildcard or of any host are others'.
func (c *compiler) emit(in *ingresses, name string, read []*ingressSource) {
	h := in.at(name)
	var plain, secure []orderedRule
	own := h.record.Certificate != nil
	add := func(p *ingressPath, m model.Match, a *model.Action, rank int) {
		rule := orderedRule{Rule: &model.Rule{Match: m, Action: a}, route: p.from.route, index: p.index, length: h.length(p), rank: rank}
		if why := c.lacking(rule.Rule); why != "" {
			c.problem("Ingress", p.from.name(), ReasonLacking, a.Rule+": "+why)
		}
		ways := waysTo(h.record, p.from, rule.Action, own, in.tls(name) != nil)
		rule.Rule = &model.Rule{Match: m, Action: ways.secure}
		secure = append(secure, rule)
		rule.Rule = &model.Rule{Match: m, Action: ways.plain}
		plain = append(plain, rule)
	}
	for _, p := range h.paths {
		m, err := h.match(p)
		if err != nil {
			c.problem("Ingress", p.from.name(), ReasonInvalid, fmt.Sprintf("%s.path: %v", p.action.Rule, err))
			continue
		}
		if h.record.Passthrough && p.from.passthrough && p.path == "/" {
			in.through[name] = append(in.through[name], orderedRule{Rule: &model.Rule{Match: m, Action: p.action}, route: p.from.route, index: p.index})
			continue
		}
		for i, special := range p.special {
			one := m
			one.Headers = special.headers
			add(p, one, special.action, i)
		}
		add(p, m, p.action, len(p.special))
	}
	if through := in.through[name]; len(through) > 0 {
		for _, p := range h.paths {
			if !p.from.passthrough {
				c.problem("Ingress", p.from.name(), ReasonConflict, fmt.Sprintf("%s: TLS of host %q passes through to what Ingress %s says: the path is served by HTTP only", p.action.Rule, name, through[0].route.name()))
			}
		}
	}
	if name != "" && h.record.Paths && (!h.hasRoot() || len(plain) == 0) {
		nobody := &model.Action{Route: "Ingress " + h.record.By.String(), Rule: "no other path", Answer: http.StatusNotFound}
		p := &ingressPath{path: "/", kind: networkingv1.PathTypePrefix, action: nobody, from: &ingressSource{route: &route{kind: "Ingress", object: c.ownerOf(h, read)}, annotations: &annotations{}}, index: 1 << 20}
		m := model.Match{Kind: model.PathPrefix, Path: "/"}
		add(p, m, nobody, 0)
		plain[len(plain)-1].length, secure[len(secure)-1].length = 0, 0 // after all others
	}
	if len(plain) > 0 {
		in.plain[name], in.secure[name] = plain, secure
	}
}

// ownerOf is the Ingress that owns a host.
func (c *compiler) ownerOf(h *ingressHost, read []*ingressSource) *networkingv1.Ingress {
	for _, s := range read {
		if s.name() == h.record.By {
			return s.object
		}
	}
	return &networkingv1.Ingress{}
}

// match is what the path of an Ingress matches. If any path of a host is a regular
// expression, all are, as in ingress-nginx: read in any case, and from the beginning
// of the request's path on.
func (h *ingressHost) match(p *ingressPath) (model.Match, error) {
	if h.record.Regexp || p.from.regexp {
		expression, err := regexp.Compile("(?i)^(?:" + p.path + ")")
		if err != nil && !p.from.regexp {
			expression, err = regexp.Compile("(?i)^" + regexp.QuoteMeta(p.path))
		}
		return model.Match{Kind: model.PathRegexp, Path: p.path, Regexp: expression}, err
	}
	switch {
	case p.kind == networkingv1.PathTypeExact:
		return model.Match{Kind: model.PathExact, Path: p.path}, nil
	case p.kind == networkingv1.PathTypeImplementationSpecific && p.path != "/": // a beginning, not whole elements
		return model.Match{Kind: model.PathRegexp, Path: p.path, Regexp: regexp.MustCompile("^" + regexp.QuoteMeta(p.path))}, nil
	}
	return model.Match{Kind: model.PathPrefix, Path: p.path}, nil
}

// length is by what the paths of a host are ordered: as long as the path is written.
// Of a regular expression of another namespace than the owner's, only what all that it
// matches begins with counts, so that none can take the owner's paths by being long.
func (h *ingressHost) length(p *ingressPath) int {
	switch {
	case h.record.Regexp && p.from.name().Namespace == h.record.By.Namespace:
		return len(p.path)
	case p.from.regexp, h.record.Regexp:
		expression, err := regexp.Compile(p.path)
		if err != nil { // it is what it says, or nothing
			return len(p.path)
		}
		literal, _ := expression.LiteralPrefix()
		return len(literal)
	case p.kind == networkingv1.PathTypePrefix && !strings.HasSuffix(p.path, "/"):
		return len(p.path) + 1
	}
	return len(p.path)
}

// ways are what a path does over HTTP and over TLS.
type ways struct{ plain, secure *model.Action }

// waysTo says who gets to a path of a host by HTTP, and by TLS. A path that asks for
// what isn't so at its host is closed.
func waysTo(r *host.Record, s *ingressSource, a *model.Action, own, served bool) ways {
	closed := func(why string) *model.Action {
		other := *a
		other.Invalid = cmp.Or(a.Invalid, why)
		return &other
	}
	const annotation = "annotation " + nginx + "auth-tls-secret: "
	switch {
	case r.Closed != "":
		a = closed(r.Closed)
	case s.clients != nil && !host.SameClients(s.clients, r.Clients):
		a = closed(annotation + "the host's owner, Ingress " + r.By.String() + ", lets in other clients")
	case s.clients != nil && !host.SameNames(s.base.Identity, r.Identity):
		a = closed("annotation " + nginx + "auth-tls-match-cn: the host's owner, Ingress " + r.By.String() + ", lets in clients of other names")
	case (s.clients != nil || r.Clients != nil) && !served:
		a = closed(annotation + "the host has no TLS, by which clients could show certificates")
	}
	if r.Clients != nil && a.Identity == nil { // what clients say of their certificates themselves isn't believed
		known := *a
		known.Identity, a = r.Identity, &known
	}
	w := ways{a, a}
	redirect := r.Redirect
	if s.redirect != host.Unsaid && s.name().Namespace == r.By.Namespace {
		redirect = s.redirect
	}
	if r.Clients != nil && served {
		w.plain = closed(annotation + "clients show certificates over TLS only")
	}
	if redirect == host.Always || redirect != host.Never && own {
		other := *w.plain
		other.RequireHTTPS, w.plain = http.StatusPermanentRedirect, &other
	}
	return w
}

// ingressCertificate is that of the Secret that an Ingress names; nil if it names
// none.
func (c *compiler) ingressCertificate(o *networkingv1.Ingress, name string) (*tls.Certificate, error) {
	if name == "" {
		return nil, nil
	}
	secret := types.NamespacedName{Namespace: o.Namespace, Name: name}
	return c.options.Certificates.read(secret, c.secret(secret))
}

// fileFor is the certificate for a host that is in a file; nil if there is none.
func (c *compiler) fileFor(host string) *tls.Certificate {
	if c.options.Files != nil {
		if list := c.options.Files(host); len(list) > 0 {
			return list[0]
		}
	}
	return nil
}

// Owner is the Ingress that owns the host a name belongs to; false if none does.
func (o *Output) Owner(name string) (types.NamespacedName, bool) {
	in := o.compiler.in
	if in == nil {
		return types.NamespacedName{}, false
	}
	for _, hostname := range covering(name) {
		if h := in.hosts[hostname]; h != nil && h.record.By.Name != "" && len(in.plain[hostname]) > 0 {
			return h.record.By, true
		}
	}
	return types.NamespacedName{}, false
}
