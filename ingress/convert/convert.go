// Package convert writes Ingresses as Gateway API objects that mean the same,
// and names what has no form there. It is pure.
//
//	convert.go      Ingresses to routes
//	gateways.go     the Gateways and listeners that they need
//	canary.go       canaries, which are a part of another Ingress
//	annotations.go  what ingress-nginx' annotations become
//	paths.go        paths and what replaces them
package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Result is what Ingresses become.
type Result struct {
	Gateways []*gatewayv1.Gateway
	Routes   []*gatewayv1.HTTPRoute
	// Left is what has no form in Gateway API, or another meaning there: a line each.
	Left []string
}

// Options say how to convert.
type Options struct {
	GatewayClass string // of the Gateways
	Gateway      string // their name, one in each namespace
	// Services are looked at for the numbers of ports that Ingresses name.
	Services map[types.NamespacedName]*corev1.Service
}

// Convert converts Ingresses. It changes none of its arguments.
func Convert(list []*networkingv1.Ingress, options Options) *Result {
	c := &conversion{options: options, out: &Result{}, listeners: map[string]*listeners{}, names: map[types.NamespacedName]bool{}, rooted: map[string]bool{}, places: map[place]*one{}, regexps: map[string]string{}}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var mains, canaries []*one
	for _, o := range list {
		i := &one{conversion: c, o: o, secured: map[string]bool{}, rules: map[string][]gatewayv1.HTTPRouteRule{}}
		if o.Annotations[nginx+"canary"] == "true" {
			canaries = append(canaries, i)
		} else {
			i.read()
			mains = append(mains, i)
		}
	}
	for _, i := range canaries {
		i.share()
	}
	for _, i := range mains {
		for _, host := range hostsOf(i.rules) {
			i.routes(host, i.rules[host], len(i.rules) > 1)
		}
	}
	c.expressions()
	c.falls()
	c.gateways()
	return c.out
}

type conversion struct {
	options   Options
	out       *Result
	listeners map[string]*listeners         // by namespace
	names     map[types.NamespacedName]bool // of routes
	rooted    map[string]bool               // hosts that have rules: whether one is for all paths
	places    map[place]*one                // who has a path, the oldest first
	regexps   map[string]string             // hosts whose paths were regular expressions, with the prefix that one is now
}

// place is a path of an Ingress.
type place struct{ namespace, host, kind, path string }

func placeOf(i *one, host string, p *networkingv1.HTTPIngressPath) place {
	kind := string(networkingv1.PathTypeImplementationSpecific)
	if p.PathType != nil {
		kind = string(*p.PathType)
	}
	return place{i.o.Namespace, host, kind, cmp.Or(p.Path, "/")}
}

// one is an Ingress in the making.
type one struct {
	*conversion
	o       *networkingv1.Ingress
	asked   asked
	secured map[string]bool                      // hosts with a certificate; "" for all
	rules   map[string][]gatewayv1.HTTPRouteRule // by host
	at      map[place]int                        // in rules
	closed  bool                                 // it protects, and isn't converted
}

// left notes what isn't converted.
func (i *one) left(format string, args ...any) {
	i.out.Left = append(i.out.Left, fmt.Sprintf("Ingress %s/%s: ", i.o.Namespace, i.o.Name)+fmt.Sprintf(format, args...))
}

// read makes the rules of an Ingress.
func (i *one) read() {
	i.at = map[place]int{}
	i.closed = !i.annotations()
	if i.closed {
		i.eachPath(func(host string, p *networkingv1.HTTPIngressPath, _ string) { i.take(placeOf(i, host, p)) })
		return
	}
	i.certificates()
	if b := i.o.Spec.DefaultBackend; b != nil {
		i.rule("", &networkingv1.HTTPIngressPath{Path: "/", Backend: *b}, "spec.defaultBackend")
	}
	i.eachPath(i.rule)
}

// take notes that the Ingress has a path, unless an older one has it.
func (i *one) take(at place) {
	if i.places[at] == nil {
		i.places[at] = i
	}
}

func (i *one) eachPath(f func(host string, p *networkingv1.HTTPIngressPath, at string)) {
	for j, r := range i.o.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for k := range r.HTTP.Paths {
			f(strings.ToLower(r.Host), &r.HTTP.Paths[k], fmt.Sprintf("spec.rules[%d].http.paths[%d]", j, k))
		}
	}
}

// expressions names hosts whose paths ingress-nginx took for regular expressions, though
// a route has a plain prefix in the place of one.
func (c *conversion) expressions() {
	for _, r := range c.out.Routes {
		for _, rule := range r.Spec.Rules {
			for _, host := range r.Spec.Hostnames {
				m := rule.Matches[0].Path
				if before, isOne := c.regexps[string(host)]; isOne && before == "" && *m.Type == gatewayv1.PathMatchPathPrefix && *m.Value != "/" {
					c.regexps[string(host)] = *m.Value
				}
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(c.regexps)) {
		if prefix := c.regexps[host]; prefix != "" {
			c.out.Left = append(c.out.Left, fmt.Sprintf("host %s: with use-regex or rewrite-target, all of its paths were read in any case, and by how they begin; in routes, %s is whole elements, in this case", host, prefix))
		}
	}
}

// falls names hosts of which some paths are those of a wildcard or of any host now:
// rules of Ingresses are their host's alone.
func (c *conversion) falls() {
	for _, host := range slices.Sorted(maps.Keys(c.rooted)) {
		if c.rooted[host] || host == "" {
			continue
		}
		wider := ""
		_, parent, _ := strings.Cut(host, ".")
		for other := range c.rooted {
			if other == "" || other != host && other == "*."+parent {
				wider = cmp.Or(other, wider, "any host")
			}
		}
		if wider != "" {
			c.out.Left = append(c.out.Left, fmt.Sprintf("host %s: requests that no rule matches go to the routes of %s; Ingresses answered 404", host, wider))
		}
	}
}

// hostsOf lists hosts in the order in which routes are written.
func hostsOf(rules map[string][]gatewayv1.HTTPRouteRule) []string {
	var hosts []string
	for h := range rules {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	return hosts
}

// rule adds a path of a host; what can't be converted is left out and named.
func (i *one) rule(host string, p *networkingv1.HTTPIngressPath, at string) {
	i.take(placeOf(i, host, p))
	rule := gatewayv1.HTTPRouteRule{Filters: slices.Clone(i.asked.filters)}
	match, rewrite, err := i.path(p)
	if err != nil {
		i.left("%s: %v", at, err)
		return
	}
	if i.asked.regexp || i.asked.rewriteTarget != "" {
		i.regexps[host] = cmp.Or(i.regexps[host], "") // there is one
	}
	rule.Matches = []gatewayv1.HTTPRouteMatch{match}
	if f := i.urlRewrite(rewrite); f != nil {
		rule.Filters = append(rule.Filters, *f)
	}
	if !i.asked.redirects {
		ref, err := i.backend(&p.Backend)
		if err != nil {
			i.left("%s.backend.%v", at, err)
			return
		}
		rule.BackendRefs = []gatewayv1.HTTPBackendRef{{BackendRef: ref}}
	}
	i.at[placeOf(i, host, p)] = len(i.rules[host])
	i.rules[host] = append(i.rules[host], rule)
	i.rooted[host] = i.rooted[host] || *match.Path.Type == gatewayv1.PathMatchPathPrefix && *match.Path.Value == "/"
}

// backend is the reference to a Service's port, by number.
func (i *one) backend(b *networkingv1.IngressBackend) (gatewayv1.BackendRef, error) {
	var ref gatewayv1.BackendRef
	if b.Service == nil {
		return ref, fmt.Errorf("resource: only Services can be converted")
	}
	ref.Name = gatewayv1.ObjectName(b.Service.Name)
	port := b.Service.Port.Number
	if name := b.Service.Port.Name; name != "" {
		s := i.options.Services[types.NamespacedName{Namespace: i.o.Namespace, Name: b.Service.Name}]
		if s == nil {
			return ref, fmt.Errorf("service.port.name: %q: its number isn't known without Service %s", name, b.Service.Name)
		}
		at := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name })
		if at < 0 {
			return ref, fmt.Errorf("service.port.name: Service %s has no port %q", b.Service.Name, name)
		}
		port = s.Spec.Ports[at].Port
	}
	ref.Port = &port
	return ref, nil
}

// routes writes the routes of a host: HTTPRoutes have room for 16 rules each.
func (i *one) routes(host string, rules []gatewayv1.HTTPRouteRule, several bool) {
	name := i.o.Name
	if several {
		name += "-" + label(host)
	}
	secured := i.secured[host] || i.secured[""]
	redirect := secured && i.asked.sslRedirect || i.asked.forceRedirect
	var ports []gatewayv1.PortNumber
	if !redirect {
		ports = append(ports, 80)
	}
	if secured {
		ports = append(ports, 443)
	}
	if strings.HasPrefix(host, "*.") {
		i.left("host %s: in Gateway API * stands for one label or more, not for one", host)
	}
	i.listenersOf(i.o.Namespace).plain = true
	if len(ports) > 0 {
		i.add(name, host, ports, rules)
	}
	if !redirect {
		return
	}
	if i.asked.forceRedirect && !secured {
		i.left("host %q has no certificate: its requests are redirected to https, and nothing serves that", host)
	}
	scheme, status := "https", 308 // as ingress-nginx answers
	list := make([]gatewayv1.HTTPRouteRule, len(rules))
	for j := range rules {
		list[j] = gatewayv1.HTTPRouteRule{Matches: rules[j].Matches, Filters: []gatewayv1.HTTPRouteFilter{{
			Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{Scheme: &scheme, StatusCode: &status},
		}}}
	}
	i.add(name+"-redirect", host, []gatewayv1.PortNumber{80}, list)
}

// mostRules is how many rules an HTTPRoute may have.
const mostRules = 16

func (i *one) add(name, host string, ports []gatewayv1.PortNumber, rules []gatewayv1.HTTPRouteRule) {
	for part := range slices.Chunk(rules, mostRules) {
		r := &gatewayv1.HTTPRoute{
			TypeMeta:   metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "HTTPRoute"},
			ObjectMeta: metav1.ObjectMeta{Namespace: i.o.Namespace, Name: i.free(name), Labels: i.o.Labels},
		}
		for _, name := range i.asked.annotations {
			if r.Annotations == nil {
				r.Annotations = map[string]string{}
			}
			r.Annotations[name] = i.o.Annotations[name]
		}
		for _, port := range ports {
			r.Spec.ParentRefs = append(r.Spec.ParentRefs, gatewayv1.ParentReference{Name: gatewayv1.ObjectName(i.options.Gateway), Port: &port})
		}
		if host != "" {
			r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(host)}
		}
		r.Spec.Rules = part
		i.out.Routes = append(i.out.Routes, r)
	}
}

// free is the name, with a number if another route has it.
func (i *one) free(name string) string {
	free := types.NamespacedName{Namespace: i.o.Namespace, Name: name}
	for n := 2; i.names[free]; n++ {
		free.Name = fmt.Sprintf("%s-%d", name, n)
	}
	i.names[free] = true
	return free.Name
}
