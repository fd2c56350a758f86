package compile

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// BalancerConfig is the ConfigMap that has all Services served as Kubernetes'
// former service-loadbalancer did. Its keys are named as that one's flags were:
// namespace, target-service, tcp-services, ssl-cert, ssl-ca-cert, balance-algorithm.
var BalancerConfig = types.NamespacedName{Namespace: "kube-system", Name: "service-loadbalancer"}

// balancer is what the ConfigMap says.
type balancer struct {
	all       bool // Services without annotations are served, too
	namespace string
	target    string
	streams   map[string][]int32 // ports of Services that are carried as bytes
	algorithm model.Algorithm
	pair      *tls.Certificate
	clients   *model.ClientValidation
}

// algorithms are those of the annotation; haproxy's first isn't among them, since
// it has one endpoint do all the work.
var algorithms = map[string]model.Algorithm{"roundrobin": model.RoundRobin, "leastconn": model.LeastRequests, "source": model.Source}

// isBalanced reports whether a Service asks to be served by itself.
func isBalanced(s *corev1.Service) bool {
	return s != nil && (s.Annotations[seed+"host"] != "" || s.Annotations[seed+"sslTerm"] != "" || s.Annotations[seed+"aclMatch"] != "")
}

// readBalancer reads the ConfigMap. What can't be read is told and left out.
func (c *compiler) readBalancer() *balancer {
	b := &balancer{streams: map[string][]int32{}}
	c.out.ConfigMaps[BalancerConfig] = struct{}{}
	m := c.ConfigMaps[BalancerConfig]
	if m == nil {
		return b
	}
	bad := func(key string, err error) {
		c.problem("ConfigMap", BalancerConfig, ReasonInvalid, fmt.Sprintf("data[%s]: %v", key, err))
	}
	b.all, b.namespace, b.target = true, m.Data["namespace"], m.Data["target-service"]
	for item := range strings.SplitSeq(m.Data["tcp-services"], ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, text, _ := strings.Cut(item, ":")
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			bad("tcp-services", fmt.Errorf("%q: must be SERVICE:PORT", item))
			continue
		}
		b.streams[name] = append(b.streams[name], int32(port))
	}
	if text := m.Data["balance-algorithm"]; text != "" {
		var given bool
		if b.algorithm, given = algorithms[text]; !given {
			bad("balance-algorithm", fmt.Errorf("%q: must be roundrobin, leastconn or source", text))
		}
	}
	c.readBalancerTLS(b, m.Data, bad)
	return b
}

// readBalancerTLS reads the certificate for all, and whom clients' are to be of.
func (c *compiler) readBalancerTLS(b *balancer, data map[string]string, bad func(string, error)) {
	named := func(text string) types.NamespacedName {
		if namespace, name, found := strings.Cut(text, "/"); found {
			return types.NamespacedName{Namespace: namespace, Name: name}
		}
		return types.NamespacedName{Namespace: BalancerConfig.Namespace, Name: text}
	}
	if text := data["ssl-cert"]; text != "" {
		name := named(text)
		var err error
		if b.pair, err = c.options.Certificates.read(name, c.secret(name)); err != nil {
			bad("ssl-cert", err)
		}
	}
	if text := data["ssl-ca-cert"]; text != "" {
		list, err := c.authorities("", "Secret", named(text))
		if err != nil {
			bad("ssl-ca-cert", err)
			b.pair = nil // nobody is let in who may not be
			return
		}
		b.clients = &model.ClientValidation{Roots: poolOf(list), Authorities: list}
	}
}

// compileBalanced makes rules of Services, and reports whether there are any.
func (c *compiler) compileBalanced(in *ingresses) bool {
	b := c.readBalancer()
	var list []*corev1.Service
	for _, s := range c.Services {
		if isBalanced(s) || b.all && (b.namespace == "" || s.Namespace == b.namespace) && (b.target == "" || s.Name == b.target) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return false
	}
	served := false
	for _, s := range byAge(list) {
		if s.Labels[gatewayv1.GatewayNameLabelKey] != "" || s.Spec.Type == corev1.ServiceTypeLoadBalancer && !isBalanced(s) ||
			s.Spec.Type == corev1.ServiceTypeExternalName || !isBalanced(s) && s.Name == "kubernetes" && s.Namespace == "default" {
			continue // it has an address of its own, or none at all
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			switch {
			case p.Protocol != corev1.ProtocolTCP && p.Protocol != "":
			case b.all && slices.Contains(b.streams[s.Name], p.Port):
				c.balancedStream(in, s, p)
				served = true
			default:
				c.balancedRule(in, b, s, p)
				served = true
			}
		}
	}
	return served
}

// balancedStream hands a port to the data planes.
func (c *compiler) balancedStream(in *ingresses, s *corev1.Service, p *corev1.ServicePort) {
	for _, o := range in.streams {
		if o.Port == uint16(p.Port) {
			c.problem("Service", nameOf(s), ReasonConflict, fmt.Sprintf("port %d belongs to Service %s, which is older", p.Port, o.Backends[0].Service))
			return
		}
	}
	if p.Port == 80 || p.Port == 443 {
		c.problem("Service", nameOf(s), ReasonConflict, fmt.Sprintf("port %d is that of HTTP", p.Port))
		return
	}
	c.refs.service(nameOf(s))
	in.streams = append(in.streams, Stream{
		Gateway: IngressGateway, Port: uint16(p.Port), Protocol: corev1.ProtocolTCP, Backends: []StreamBackend{{nameOf(s), p, 1}},
	})
}

// balancedRule gives a Service's port a path or a host.
func (c *compiler) balancedRule(in *ingresses, b *balancer, s *corev1.Service, p *corev1.ServicePort) {
	name := nameOf(s)
	r := &route{kind: "Service", object: s}
	host, match, rewrite, err := balancedMatch(s, p)
	if err != nil {
		c.problem("Service", name, ReasonInvalid, err.Error())
		return
	}
	key := pathKey(map[model.PathKind]networkingv1.PathType{model.PathPrefix: networkingv1.PathTypePrefix}[match.Kind], match.Path)
	at := in.at(host)
	if first := at.claimed[key]; first != nil {
		c.problem("Service", name, ReasonConflict, fmt.Sprintf("host %q, path %s belongs to %s, which is older", host, match.Path, first.from.title()))
		return
	}
	at.claimed[key] = &ingressPath{from: &ingressSource{route: r}}
	a := &annotations{algorithm: b.algorithm}
	c.readBalanced(s, a)
	a.base.Rewrite = rewrite
	action := a.action(r, p.Name)
	c.refs.service(name)
	backend := model.Backend{Weight: 1}
	if pool, _, message := c.pool(r, nil, name, p); message != "" {
		backend.Invalid = message
		c.problem("Service", name, ReasonInvalid, message)
	} else {
		backend.Pool = c.adapted(pool, a)
	}
	action.Backends = []model.Backend{backend}
	rule := &model.Rule{Match: match, Action: action}
	if why := c.lacking(rule); why != "" {
		c.problem("Service", name, ReasonLacking, why)
	}
	one := orderedRule{Rule: rule, route: r, index: int(p.Port), length: len(match.Path)}
	if secure := s.Annotations[seed+"sslTerm"]; secure != "" {
		on, err := strconv.ParseBool(secure)
		if err != nil {
			c.problem("Service", name, ReasonInvalid, fmt.Sprintf("annotation %ssslTerm: %q: must be true or false", seed, secure))
		}
		if on {
			c.balancedSecure(in, b, s, host, one)
			return
		}
	}
	in.plain[host] = append(in.plain[host], one)
}

// balancedSecure serves a rule over TLS only. A certificate that an Ingress has for
// the host is the host's.
func (c *compiler) balancedSecure(in *ingresses, b *balancer, s *corev1.Service, host string, rule orderedRule) {
	own, other := in.certificateOf(host), in.at("").record
	if own == nil && b.pair == nil {
		c.problem("Service", nameOf(s), ReasonNotFound, fmt.Sprintf("annotation %ssslTerm: there is no certificate: ConfigMap %s names none as ssl-cert", seed, BalancerConfig))
		return
	}
	if own != nil && own != b.pair && b.clients != nil {
		c.problem("Service", nameOf(s), ReasonConflict, fmt.Sprintf("annotation %ssslTerm: an Ingress has the certificate for the host, and asks clients for none, as ssl-ca-cert does", seed))
		return
	}
	if own == nil {
		other.Certificate, other.Clients = b.pair, b.clients
	}
	in.secure[host] = append(in.secure[host], rule)
}

// balancedMatch is how a port is found: by the path /SERVICE, or /SERVICE:PORT, which
// endpoints don't see; or by what annotations say.
func balancedMatch(s *corev1.Service, p *corev1.ServicePort) (host string, m model.Match, rewrite *model.Rewrite, err error) {
	host = strings.ToLower(s.Annotations[seed+"host"])
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	text := s.Annotations[seed+"aclMatch"]
	switch {
	case text != "":
		m, err = aclMatch(text)
	case host != "":
		m = model.Match{Kind: model.PathPrefix, Path: "/"}
	default:
		path := "/" + s.Name
		if p.Port != 80 {
			path += ":" + strconv.Itoa(int(p.Port))
		}
		m, rewrite = model.Match{Kind: model.PathPrefix, Path: path}, &model.Rewrite{Path: &model.PathEdit{Value: "/"}}
	}
	return host, m, rewrite, err
}

// aclMatch reads what haproxy's path_beg takes: beginnings of paths, after -i in any
// case of letters.
func aclMatch(text string) (model.Match, error) {
	words := strings.Fields(text)
	flags := ""
	if len(words) > 0 && words[0] == "-i" {
		flags, words = "(?i)", words[1:]
	}
	if len(words) == 0 {
		return model.Match{}, fmt.Errorf("annotation %saclMatch: %q: must be beginnings of paths, after -i if letters' case doesn't matter", seed, text)
	}
	for i, w := range words {
		if !strings.HasPrefix(w, "/") {
			return model.Match{}, fmt.Errorf("annotation %saclMatch: %q: a path begins with a slash", seed, w)
		}
		words[i] = regexp.QuoteMeta(w)
	}
	e, err := regexp.Compile(flags + "^(?:" + strings.Join(words, "|") + ")")
	return model.Match{Kind: model.PathRegexp, Path: text, Regexp: e}, err
}

// readBalanced reads the annotations that Ingresses may have, too.
func (c *compiler) readBalanced(s *corev1.Service, a *annotations) {
	for _, name := range []string{seed + "algorithm", seed + "cookie-sticky-session"} {
		text := s.Annotations[name]
		if text == "" {
			continue
		}
		if err := seeds[name](&reading{compiler: c, a: a}, text); err != nil {
			c.problem("Service", nameOf(s), ReasonInvalid, fmt.Sprintf("annotation %s: %v", name, err))
		}
	}
	a.settle()
}

// streamPorts are those that the Service of all Ingresses needs besides.
func streamPorts(list []Stream) []Port {
	var ports []Port
	for _, s := range list {
		ports = append(ports, Port{Number: s.Port, Protocol: s.Protocol, Stream: true})
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
	return ports
}
