package compile

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// isDefaultClass is on the IngressClass of Ingresses that name none.
const isDefaultClass = "ingressclass.kubernetes.io/is-default-class"

// ingresses are all Ingresses that are served, in the making: they share the
// ports 80 and 443.
type ingresses struct {
	plain   map[string][]orderedRule // by hostname
	secure  map[string][]orderedRule
	certs   map[string]*tls.Certificate // by hostname
	issuers map[string]string           // hostname of a certificate to the Ingress that brought it
	claimed map[string]string           // host and path to the Ingress that has it
	mains   map[string]*mainRule        // by host and path
	through map[string][]orderedRule    // hosts whose TLS goes on as it is
	clients map[string]*model.ClientValidation
	www     map[string]www
	files   bool // engines may have certificates in files
	http3   bool
	streams []Stream

	balanced bool // Services are served, too
	// What Update needs: all Ingresses that are served, and their listeners.
	objects         map[types.NamespacedName]*networkingv1.Ingress
	byHost          map[string]map[types.NamespacedName]struct{}
	plainListener   *listener
	secureListeners map[string]*listener // by hostname of the certificate
}

// compileIngresses makes listeners of Ingresses: one for each hostname with a
// certificate, and one for all others.
func (c *compiler) compileIngresses() {
	if !c.serves(IngressGateway) {
		return
	}
	c.classes = c.ingressClasses()
	in := &ingresses{
		plain: map[string][]orderedRule{}, secure: map[string][]orderedRule{},
		certs: map[string]*tls.Certificate{}, issuers: map[string]string{}, claimed: map[string]string{}, mains: map[string]*mainRule{},
		through: map[string][]orderedRule{}, clients: map[string]*model.ClientValidation{}, www: map[string]www{},
		objects: map[types.NamespacedName]*networkingv1.Ingress{}, byHost: map[string]map[types.NamespacedName]struct{}{}, secureListeners: map[string]*listener{},
	}
	var list []*networkingv1.Ingress
	for _, o := range c.Ingresses {
		if class := classOf(o); c.classes[class] {
			list = append(list, o)
			in.http3 = in.http3 || c.http3Classes[class]
			c.out.Ingresses[nameOf(o)] = true
		}
	}
	c.compileAll(in, list)
	in.addWWW()
	if in.balanced = c.compileBalanced(in); !in.balanced && len(list) == 0 {
		return
	}
	c.in = in
	c.out.Streams = append(c.out.Streams, in.streams...)
	result := &GatewayResult{Ports: []Port{{Number: 80, Protocol: corev1.ProtocolTCP}}}
	in.plainListener = &listener{rules: in.plain}
	c.ingressSocket(80, false, in.plainListener.finishAs("http", "", nil))
	if len(in.certs)+len(in.through) > 0 || in.files {
		result.Ports = append(result.Ports, Port{Number: 443, Protocol: corev1.ProtocolTCP})
		var list []*model.Listener
		for hostname, cert := range in.certs {
			l := &listener{rules: in.secureRules(hostname)}
			in.secureListeners[hostname] = l
			m := l.finishAs("https-"+hostname, hostname, []*tls.Certificate{cert})
			m.Clients = in.clients[hostname]
			list = append(list, m)
		}
		for hostname, rules := range in.through {
			m := (&listener{rules: map[string][]orderedRule{hostname: rules}}).finishAs("passthrough-"+hostname, hostname, nil)
			m.Mode = model.Passthrough
			list = append(list, m)
		}
		slices.SortFunc(list, func(a, b *model.Listener) int { return model.CompareHostnames(a.Hostname, b.Hostname) })
		c.ingressSocket(443, true, list...)
		if in.http3 {
			result.Ports = append(result.Ports, Port{Number: 443, Protocol: corev1.ProtocolUDP})
			c.sockets[fmt.Sprintf("%s:%d", IngressGateway, 443)].model.HTTP3 = true
		}
	}
	result.Ports = append(result.Ports, streamPorts(in.streams)...)
	c.out.Gateways[IngressGateway] = result
}

// compileAll compiles Ingresses, canaries last: they need the others to be there.
func (c *compiler) compileAll(in *ingresses, list []*networkingv1.Ingress) {
	list = byAge(list)
	for _, canaries := range []bool{false, true} {
		for _, o := range list {
			if (o.Annotations[nginx+"canary"] == "true") == canaries {
				c.compileIngress(in, o)
			}
		}
	}
	if c.options.TableOnly {
		for _, o := range list {
			in.keep(o)
		}
	}
}

// secureRules are the rules of the listener for the hostname of a certificate.
func (in *ingresses) secureRules(hostname string) map[string][]orderedRule {
	rules := map[string][]orderedRule{}
	if hostname != "" && !strings.HasPrefix(hostname, "*") { // of which there may be many
		for _, h := range []string{hostname, ""} {
			if list := in.secure[h]; len(list) > 0 {
				rules[h] = list
			}
		}
		return rules
	}
	for h, list := range in.secure {
		if in.has(hostname, h) {
			rules[h] = list
		}
	}
	return rules
}

// coversRules reports whether a hostname is for all names that a host of rules is for.
func coversRules(hostname, host string) bool {
	return host != "" && model.Covers(hostname, strings.TrimPrefix(host, "*"))
}

// ingressClasses are ours, by name; "" if Ingresses without a class are ours.
func (c *compiler) ingressClasses() map[string]bool {
	out := map[string]bool{}
	for _, class := range c.IngressClasses {
		if class.Spec.Controller == IngressController {
			out[class.Name] = true
			http3 := c.wantsHTTP3("IngressClass", class)
			c.http3Classes[class.Name] = http3
			if class.Annotations[isDefaultClass] == "true" {
				out[""] = true
				c.http3Classes[""] = http3
			}
		}
	}
	return out
}

func (c *compiler) ingressSocket(port uint16, secure bool, listeners ...*model.Listener) {
	s := &model.Socket{Name: fmt.Sprintf("%s:%d", IngressGateway, port), Port: port, TLS: secure, Listeners: listeners}
	if c.options.Bind != nil {
		s.Bind = c.options.Bind(IngressGateway, port)
	}
	s.Index()
	c.sockets[s.Name] = &socket{model: s}
}

// finishAs makes a model's listener of rules alone.
func (l *listener) finishAs(name, hostname string, certificates []*tls.Certificate) *model.Listener {
	l.spec.Name = "x"
	l.gateway = &gateway{name: IngressGateway}
	m := l.finish()
	l.socket = &socket{} // it is served
	m.Name, m.Hostname, m.Mode, m.Certificates = IngressGateway.String()+"/"+name, hostname, model.HTTP, certificates
	return m
}

func (c *compiler) compileIngress(in *ingresses, o *networkingv1.Ingress) {
	name := nameOf(o)
	r := &route{kind: "Ingress", object: o}
	c.refs.begin(r)
	defer c.refs.end()
	a := c.annotations(o)
	c.wantIngress(o)
	secured := map[string]bool{}
	for i, t := range o.Spec.TLS {
		named, err := c.ingressCertificate(o, t.SecretName)
		if err != nil {
			c.problem("Ingress", name, ReasonInvalid, fmt.Sprintf("spec.tls[%d].secretName: %v", i, err))
		}
		in.files = in.files || t.SecretName == "" && !c.options.TableOnly // which only engines know
		hosts := t.Hosts
		if len(hosts) == 0 {
			hosts = []string{""}
		}
		for _, h := range hosts {
			h = strings.ToLower(h)
			pair := named
			if t.SecretName == "" {
				pair = c.fileFor(h)
			}
			if first := in.certs[h]; pair != nil && first != nil && first != pair {
				c.problem("Ingress", name, ReasonConflict, fmt.Sprintf("spec.tls[%d]: host %q has the certificate that Ingress %s brought, which is older", i, h, in.issuers[h]))
			} else if pair != nil {
				in.certs[h], in.issuers[h] = pair, name.String()
			}
			secured[h] = in.certs[h] != nil
			if a.clients != nil {
				in.clients[h] = a.clients
			}
		}
	}
	if b := o.Spec.DefaultBackend; b != nil {
		c.ingressRule(in, r, a, o, "", networkingv1.HTTPIngressPath{Path: "/", Backend: *b}, len(secured) > 0, "spec.defaultBackend", 1<<20)
	}
	for i, rule := range o.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			host := strings.ToLower(rule.Host)
			c.ingressRule(in, r, a, o, host, p, secured[host] || secured[""], fmt.Sprintf("spec.rules[%d].http.paths[%d]", i, j), i<<10|j)
		}
	}
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

// ingressRule adds a path of a host, over HTTP, and HTTPS too if the host has a
// certificate.
func (c *compiler) ingressRule(in *ingresses, r *route, a *annotations, o *networkingv1.Ingress, host string, p networkingv1.HTTPIngressPath, secure bool, at string, index int) {
	name := nameOf(o)
	match := model.Match{Kind: model.PathPrefix, Path: p.Path}
	if match.Path == "" {
		match.Path = "/"
	}
	switch {
	case a.regexp:
		expression, err := regexp.Compile("(?i)^(?:" + match.Path + ")") // as ingress-nginx does
		if err != nil {
			c.problem("Ingress", name, ReasonInvalid, at+".path: "+err.Error())
			return
		}
		match.Kind, match.Regexp = model.PathRegexp, expression
	case value(p.PathType, networkingv1.PathTypeImplementationSpecific) == networkingv1.PathTypeExact:
		match.Kind, match.Path = model.PathExact, policy.RulePath(match.Path)
	default:
		match.Path = policy.RulePath(match.Path)
	}
	key := mainKey(host, &match)
	if a.canary != nil {
		backend, err := c.ingressBackend(r, a, &p.Backend)
		if backend.Weight = 1; err != nil {
			c.problem("Ingress", name, ReasonNotFound, at+".backend: "+err.Error())
			return // the canary has nothing, and the others go on as they were
		}
		c.canaryRule(in, r, a, host, match, backend, func(action *model.Action) { _ = bind(action, o, host, &p.Backend) }, at, index)
		return
	}
	if first := in.claimed[key]; first != "" {
		c.problem("Ingress", name, ReasonConflict, fmt.Sprintf("%s: host %q, path %s belongs to Ingress %s, which is older", at, host, p.Path, first))
		return
	}
	in.claimed[key] = name.String()
	action := a.action(r, at)
	if wrong := bind(action, o, host, &p.Backend); wrong != "" {
		c.problem("Ingress", name, ReasonInvalid, at+": "+wrong)
	}
	backend, err := c.ingressBackend(r, a, &p.Backend)
	backend.Weight = 1
	if err != nil {
		backend.Invalid = at + ".backend: " + err.Error()
		c.problem("Ingress", name, ReasonNotFound, backend.Invalid)
	}
	action.Backends = []model.Backend{backend}
	own := &model.Rule{Match: match, Action: action}
	if why := c.lacking(own); why != "" {
		c.problem("Ingress", name, ReasonLacking, at+": "+why)
		action = own.Action
	}
	rule := orderedRule{own, r, index}
	redirected := secure && a.sslRedirect || a.forceRedirect
	in.mains[key] = &mainRule{action, secure, redirected}
	if a.passthrough && host != "" && match.Kind == model.PathPrefix && match.Path == "/" {
		in.through[host] = append(in.through[host], rule)
		return
	}
	if a.clients != nil && !secure { // nobody is let in without a certificate
		action.Invalid = "annotation " + nginx + "auth-tls-secret: the host has no TLS, by which clients could show certificates"
	}
	in.add(host, rule, secure, redirected)
	if a.clients != nil && secure && !redirected {
		last := &in.plain[host][len(in.plain[host])-1]
		closed := *action
		closed.Invalid = "annotation " + nginx + "auth-tls-secret: clients show certificates over TLS only"
		last.Rule = &model.Rule{Match: match, Action: &closed}
	}
	in.addAppRoot(r, a, host, secure, redirected, index)
	if a.www && host != "" && !strings.HasPrefix(host, "*") {
		in.www[host] = www{r, secure}
	}
}

// add gives a host a rule, over HTTP and, if it is secure, over HTTPS.
func (in *ingresses) add(host string, rule orderedRule, secure, redirected bool) {
	if secure {
		in.secure[host] = append(in.secure[host], rule)
	}
	if redirected {
		rule.Rule = &model.Rule{Match: rule.Match, Action: &model.Action{
			Route: rule.Action.Route, Rule: rule.Action.Rule, Redirect: &model.Redirect{Scheme: "https", Status: 308},
		}}
	}
	in.plain[host] = append(in.plain[host], rule)
}

// addAppRoot sends clients that ask for / to where the application is.
func (in *ingresses) addAppRoot(r *route, a *annotations, host string, secure, redirected bool, index int) {
	match := model.Match{Kind: model.PathExact, Path: "/"}
	key := mainKey(host, &match)
	if a.appRoot == "" || in.claimed[key] != "" {
		return
	}
	in.claimed[key] = r.name().String()
	action := &model.Action{Route: r.title(), Rule: "app-root", Redirect: &model.Redirect{Path: &model.PathEdit{Full: true, Value: a.appRoot}, Status: 302}}
	in.add(host, orderedRule{&model.Rule{Match: match, Action: action}, r, index}, secure, redirected)
}

// www is a host of which the one with www., or without it, is to lead here.
type www struct {
	route  *route
	secure bool
}

// addWWW adds what leads there, unless an Ingress has the host.
func (in *ingresses) addWWW() {
	for host, w := range in.www {
		other, found := strings.CutPrefix(host, "www.")
		if !found {
			other = "www." + host
		}
		if len(in.plain[other]) > 0 {
			continue
		}
		action := &model.Action{Route: w.route.title(), Rule: "from-to-www-redirect", Redirect: &model.Redirect{Host: host, Status: 308}}
		rule := orderedRule{&model.Rule{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: action}, w.route, 0}
		in.add(other, rule, w.secure, false)
	}
}

// ingressBackend finds the Service and port of a path.
func (c *compiler) ingressBackend(r *route, a *annotations, b *networkingv1.IngressBackend) (model.Backend, error) {
	if b.Service == nil {
		return model.Backend{}, fmt.Errorf("resource: it must be a service")
	}
	name := types.NamespacedName{Namespace: r.object.GetNamespace(), Name: b.Service.Name}
	c.refs.service(name)
	s := c.Services[name]
	if s == nil {
		return model.Backend{}, fmt.Errorf("service.name: there is no Service %s", name)
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return model.Backend{}, fmt.Errorf("service.name: Service %s is of type ExternalName, which could lead anywhere", name)
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if b.Service.Port.Name != "" && p.Name != b.Service.Port.Name || b.Service.Port.Name == "" && p.Port != b.Service.Port.Number {
			continue
		}
		pool, _, message := c.pool(r, nil, name, p)
		if message != "" {
			return model.Backend{}, fmt.Errorf("service.port: %s", message)
		}
		return model.Backend{Pool: c.adapted(pool, a)}, nil
	}
	return model.Backend{}, fmt.Errorf("service.port: Service %s has no port %s%d", name, b.Service.Port.Name, b.Service.Port.Number)
}

// adapted is the pool as annotations have it: another protocol or algorithm is
// another pool.
func (c *compiler) adapted(name string, a *annotations) string {
	if a.suffix == "" {
		return name
	}
	p := *c.out.Table.Pools[name]
	p.Name += "/" + a.suffix
	a.adapt(&p)
	if c.out.Table.Pools[p.Name] == nil {
		c.out.addPool(&p, c.out.sources[name])
	}
	c.refs.pool(p.Name)
	return p.Name
}
