package compile

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/compile/host"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// ingressPaths adds the paths of an Ingress to its hosts.
func (c *compiler) ingressPaths(in *ingresses, s *ingressSource) {
	if s.canary != nil {
		return
	}
	s.eachPath(in, func(hostname string, p networkingv1.HTTPIngressPath, at string, index int) {
		c.ingressPath(in, s, hostname, p, at, index)
	})
	if b := s.object.Spec.DefaultBackend; b != nil {
		for _, hostname := range s.hostsOfAny(in) {
			c.ingressPath(in, s, hostname, defaultPath(b), "spec.defaultBackend", 1<<20)
		}
	}
	for hostname, given := range s.hostsWithPaths() {
		if given {
			c.addAppRoot(in, s, hostname)
		}
	}
}

func defaultPath(b *networkingv1.IngressBackend) networkingv1.HTTPIngressPath {
	kind := networkingv1.PathTypePrefix
	return networkingv1.HTTPIngressPath{Path: "/", PathType: &kind, Backend: *b}
}

// ingressDefaults has the default backend of an Ingress answer at the hosts that it
// owns, where no path does.
func (c *compiler) ingressDefaults(in *ingresses, s *ingressSource) {
	b := s.object.Spec.DefaultBackend
	if b == nil || s.canary != nil {
		return
	}
	for _, r := range s.object.Spec.Rules {
		h := in.at(strings.ToLower(r.Host))
		if r.HTTP == nil || r.Host == "" || h.record.By != s.name() || h.hasRoot() {
			continue
		}
		c.ingressPath(in, s, strings.ToLower(r.Host), defaultPath(b), "spec.defaultBackend", 1<<20)
	}
}

// hasRoot reports whether some path has all that no other one has.
func (h *ingressHost) hasRoot() bool {
	return h.claimed[pathKey(networkingv1.PathTypePrefix, "/")] != nil || h.claimed[pathKey(networkingv1.PathTypeImplementationSpecific, "/")] != nil
}

// hostsOfAny are the hosts at which an Ingress has its paths of any host: any, and
// those that it has a certificate for, and nothing else, and owns.
func (s *ingressSource) hostsOfAny(in *ingresses) []string {
	list := []string{""}
	for h := range s.certificates {
		named := slices.ContainsFunc(s.object.Spec.Rules, func(r networkingv1.IngressRule) bool { return strings.EqualFold(r.Host, h) })
		if h != "" && !named && in.at(h).record.By == s.name() {
			list = append(list, h)
		}
	}
	slices.Sort(list)
	return list
}

// eachPath calls f for each path of the rules, at each of its hosts.
func (s *ingressSource) eachPath(in *ingresses, f func(hostname string, p networkingv1.HTTPIngressPath, at string, index int)) {
	for i, rule := range s.object.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		hosts := []string{strings.ToLower(rule.Host)}
		if rule.Host == "" {
			hosts = s.hostsOfAny(in)
		}
		for j, p := range rule.HTTP.Paths {
			if p.Path == "" {
				p.Path = "/"
			}
			for _, h := range hosts {
				f(h, p, fmt.Sprintf("spec.rules[%d].http.paths[%d]", i, j), i<<10|j)
			}
		}
	}
}

// kindOfPath is the type of a path; one that isn't given is the implementation's.
func kindOfPath(p *networkingv1.HTTPIngressPath) networkingv1.PathType {
	return value(p.PathType, networkingv1.PathTypeImplementationSpecific)
}

// ingressPath adds a path of a host, unless an older Ingress has it.
func (c *compiler) ingressPath(in *ingresses, s *ingressSource, hostname string, p networkingv1.HTTPIngressPath, at string, index int) {
	h, name := in.at(hostname), s.name()
	path := h.path(s, p.Path)
	key := pathKey(kindOfPath(&p), path)
	if first := h.claimed[key]; first != nil {
		c.problem("Ingress", name, ReasonConflict, fmt.Sprintf("%s: host %q, path %s belongs to Ingress %s, which is older", at, hostname, p.Path, first.from.name()))
		return
	}
	action := s.action(s.route, at)
	if wrong := bind(action, s.object, hostname, &p); wrong != "" {
		c.problem("Ingress", name, ReasonInvalid, at+": "+wrong)
	}
	backend, err := c.ingressBackend(s.route, s.annotations, &p.Backend)
	backend.Weight = 1
	if err != nil {
		backend.Invalid = at + ".backend: " + err.Error()
		c.problem("Ingress", name, ReasonNotFound, backend.Invalid)
	}
	action.Backends = []model.Backend{backend}
	one := &ingressPath{path: path, kind: kindOfPath(&p), action: action, from: s, index: index}
	h.claimed[key], h.paths = one, append(h.paths, one)
}

// path is what a path of the host is known by: its normal form, so that "/%61dmin" is
// "/admin". Regular expressions have none.
func (h *ingressHost) path(s *ingressSource, path string) string {
	if h.record.Regexp || s.regexp {
		return path
	}
	return policy.RulePath(path)
}

// addAppRoot sends clients that ask for / to where the application is.
func (c *compiler) addAppRoot(in *ingresses, s *ingressSource, hostname string) {
	key := pathKey(networkingv1.PathTypeExact, "/")
	h := in.at(hostname)
	if s.appRoot == "" || h.claimed[key] != nil {
		return
	}
	root := *s
	plain := *s.annotations
	plain.regexp = false
	root.annotations = &plain
	redirect := &model.Redirect{Path: &model.PathEdit{Full: true, Value: s.appRoot}, Status: http.StatusFound, Relative: s.relative}
	one := &ingressPath{path: "/", kind: networkingv1.PathTypeExact, from: &root, action: &model.Action{Route: s.title(), Rule: "app-root", Redirect: redirect}}
	h.claimed[key], h.paths = one, append(h.paths, one)
}

// addOtherNames adds the other names of hosts: aliases, which are the host by another
// name, and those with or without www., which lead there. A name of which an Ingress has
// paths is its own, and one that several give belongs to the oldest.
func (c *compiler) addOtherNames(in *ingresses, list []*networkingv1.Ingress) {
	age := map[types.NamespacedName]int{}
	for i, o := range byAge(list) {
		age[nameOf(o)] = i
	}
	var hosts []*ingressHost
	for _, h := range in.hosts {
		if h.record.WWW || len(h.record.Aliases) > 0 {
			hosts = append(hosts, h)
		}
	}
	slices.SortFunc(hosts, func(a, b *ingressHost) int {
		return cmp.Or(cmp.Compare(age[a.record.By], age[b.record.By]), strings.Compare(a.record.Host, b.record.Host))
	})
	for _, h := range hosts {
		for _, alias := range h.record.Aliases {
			c.addAlias(in, h, alias)
		}
	}
	for _, h := range hosts {
		name := h.record.Host
		other, found := strings.CutPrefix(name, "www.")
		if !found {
			other = "www." + name
		}
		if !h.record.WWW || in.ownerOfPaths(other) != nil || len(in.plain[name]) == 0 {
			continue
		}
		in.name(other, h)
		action := &model.Action{Route: "Ingress " + h.record.By.String(), Rule: "from-to-www-redirect", Redirect: &model.Redirect{Host: name, Status: http.StatusPermanentRedirect}}
		rule := orderedRule{Rule: &model.Rule{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: action}, route: in.plain[name][0].route}
		in.plain[other], in.secure[other] = []orderedRule{rule}, []orderedRule{rule}
	}
}

// addAlias has a host answer by another name, if nobody else does.
func (c *compiler) addAlias(in *ingresses, h *ingressHost, alias string) {
	if first := in.ownerOfPaths(alias); first != nil {
		if first.record.By != h.record.By {
			c.problem("Ingress", h.record.By, ReasonConflict, fmt.Sprintf("annotation %sserver-alias: host %q belongs to Ingress %s", nginx, alias, first.record.By))
		}
		return
	}
	in.name(alias, h)
	in.plain[alias], in.secure[alias] = in.plain[h.record.Host], in.secure[h.record.Host]
}

// ownerOfPaths is the host of that name, if it has paths; one that spec.tls alone names
// has none.
func (in *ingresses) ownerOfPaths(name string) *ingressHost {
	if h := in.hosts[name]; h != nil && (h.record.Paths || len(in.plain[name]) > 0) {
		return h
	}
	return nil
}

// name gives a host another name, under which it has the certificate that covers the
// name, or else its own.
func (in *ingresses) name(other string, h *ingressHost) {
	record := &host.Record{Claim: host.Claim{By: h.record.By, Host: other, Certificate: h.record.Certificate, For: other, Clients: h.record.Clients, Identity: h.record.Identity}, Issuer: h.record.Issuer}
	for _, covers := range covering(other) { // spec.tls may name it
		if wider := in.hosts[covers]; wider != nil && wider.record.Certificate != nil && wider.record.By.Namespace == h.record.By.Namespace {
			record.Certificate, record.For = wider.record.Certificate, covers
			break
		}
	}
	in.hosts[other] = &ingressHost{record: record, claimed: map[string]*ingressPath{}}
}
