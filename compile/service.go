package compile

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/model"
)

// labelProxyName is on Services that another proxy serves (KEP-2447).
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// service is all that is remembered of a Service and its slices.
type service struct {
	key       types.NamespacedName
	spec      *spec    // nil while only slices are known
	slices    []*slice // sorted by name
	frontends []*model.Frontend
	pools     []usedPool // sorted by id
	problems  []Problem

	dirty          bool // waits in Compiler.dirty
	entrancesDirty bool // more than endpoints may have changed
	conflicted     bool // waits in Compiler.conflicted
}

// spec is what a Service says, in a compact form.
type spec struct {
	created         int64 // seconds; settles whose address it is
	ports           []port
	clusterIPs      []netip.Addr
	externalIPs     []netip.Addr
	loadBalancerIPs []netip.Addr
	sources         []netip.Prefix // of load-balancer addresses
	sourcesLimited  bool           // sources were given, whatever came of them
	exempt          bool           // another proxy serves it
	internalLocal   bool
	externalLocal   bool
	allReady        bool // publishNotReadyAddresses
	healthPort      uint16
	affinity        time.Duration
	overrides       overrides
	problems        []Problem
}

// port is one port of a Service.
type port struct {
	name     string // as in slices
	title    string // "namespace/service:port", or without ":port" if it has no name
	proto    model.Protocol
	port     uint16
	nodePort uint16
}

// newSpec reads what this node needs of a Service. A Service that this node
// doesn't serve has no ports.
func newSpec(s *corev1.Service) *spec {
	p := &spec{created: s.CreationTimestamp.Unix()}
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" {
		return p
	}
	if strings.ContainsAny(s.Namespace+s.Name, "/:") {
		p.problem(ReasonInvalid, "metadata.name: a name with %q can't be told from others", "/:")
		return p
	}
	p.readClusterIPs(s)
	if _, other := s.Labels[labelProxyName]; other {
		p.exempt = true
		return p
	}
	if _, headless := s.Labels[corev1.IsHeadlessService]; headless {
		return p
	}
	p.readPorts(s)
	p.readExternalIPs(s)
	p.readLoadBalancer(s)
	p.readPolicies(s)
	p.readAnnotations(s.Annotations)
	return p
}

func (p *spec) readClusterIPs(s *corev1.Service) {
	list := s.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{s.Spec.ClusterIP}
	}
	for _, text := range list {
		if a, ok := p.address("spec.clusterIPs", text); ok {
			p.clusterIPs = append(p.clusterIPs, a)
		}
	}
}

func (p *spec) readPorts(s *corev1.Service) {
	for _, sp := range s.Spec.Ports {
		proto, known := protocol(sp.Protocol)
		if strings.ContainsAny(sp.Name, "/:") || !known || sp.Port < 1 || sp.Port > 65535 || sp.NodePort < 0 || sp.NodePort > 65535 {
			p.problem(ReasonInvalid, "spec.ports: port %q: %d/%s is no port that can be served", sp.Name, sp.Port, sp.Protocol)
			continue
		}
		title := s.Namespace + "/" + s.Name
		if sp.Name != "" {
			title += ":" + sp.Name
		}
		double := func(o port) bool { return o.proto == proto && (o.name == sp.Name || o.port == uint16(sp.Port)) }
		if slices.ContainsFunc(p.ports, double) {
			p.problem(ReasonInvalid, "spec.ports: port %q: %d/%s is there twice", sp.Name, sp.Port, proto)
			continue
		}
		p.ports = append(p.ports, port{
			name: sp.Name, title: title, proto: proto,
			port: uint16(sp.Port), nodePort: uint16(sp.NodePort),
		})
	}
}

// protocol is the model's for the API's; an unset one is TCP (the API's default).
func protocol(p corev1.Protocol) (model.Protocol, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return model.TCP, true
	case corev1.ProtocolUDP:
		return model.UDP, true
	case corev1.ProtocolSCTP:
		return model.SCTP, true
	}
	return 0, false
}

func (p *spec) readExternalIPs(s *corev1.Service) {
	for _, text := range s.Spec.ExternalIPs {
		if a, ok := p.address("spec.externalIPs", text); ok && p.serves(a) {
			p.externalIPs = append(p.externalIPs, a)
		}
	}
}

// readLoadBalancer reads the addresses that a load balancer delivers to the
// node unchanged. In ipMode Proxy it delivers to node ports or pods, and
// packets to the address must reach it from here too (KEP-1860).
func (p *spec) readLoadBalancer(s *corev1.Service) {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		if a, ok := p.address("status.loadBalancer.ingress", in.IP); ok && p.serves(a) {
			p.loadBalancerIPs = append(p.loadBalancerIPs, a)
		}
	}
	p.readSources(s)
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		if n := s.Spec.HealthCheckNodePort; n > 0 && n <= 65535 {
			p.healthPort = uint16(n)
		}
	}
}

// readSources reads whom load-balancer addresses are open to: the field, or the
// annotation that was there before it.
func (p *spec) readSources(s *corev1.Service) {
	ranges, field := s.Spec.LoadBalancerSourceRanges, "spec.loadBalancerSourceRanges"
	if text := strings.TrimSpace(s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]); len(ranges) == 0 && text != "" {
		ranges, field = strings.Split(text, ","), "annotation "+corev1.AnnotationLoadBalancerSourceRangesKey
	}
	for _, text := range ranges {
		r, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			p.problem(ReasonInvalid, "%s: %q is no CIDR and lets nobody in", field, text)
			continue
		}
		p.sources = append(p.sources, r.Masked())
	}
	p.sourcesLimited = len(ranges) > 0
	slices.SortFunc(p.sources, netip.Prefix.Compare)
	p.sources = slices.Compact(p.sources)
	for _, a := range p.loadBalancerIPs {
		if len(p.sources) > 0 && !slices.ContainsFunc(p.sources, func(r netip.Prefix) bool { return r.Addr().Is6() == a.Is6() }) {
			p.problem(ReasonOpen, "%s: no range is of the family of %s, which is therefore open to everybody", field, a)
		}
	}
}

// longestAffinity is the API's limit, in seconds.
const longestAffinity = 86400

// readPolicies reads the traffic policies. The external one says nothing where
// there is no entrance for traffic from outside.
func (p *spec) readPolicies(s *corev1.Service) {
	p.internalLocal = s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	p.externalLocal = s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	p.allReady = s.Spec.PublishNotReadyAddresses
	if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	if seconds < 1 || seconds > longestAffinity {
		p.problem(ReasonInvalid, "spec.sessionAffinityConfig.clientIP.timeoutSeconds: %d is not between 1 and %d: there is no affinity", seconds, longestAffinity)
		return
	}
	p.affinity = time.Duration(seconds) * time.Second
}

// address reads an address that the node can serve, or notes what is wrong.
func (p *spec) address(field, text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		p.problem(ReasonInvalid, "%s: %q is no IP address", field, text)
		return netip.Addr{}, false
	}
	a = a.Unmap()
	if special(a) {
		p.problem(ReasonInvalid, "%s: %s is not an address that a Service can have", field, a)
		return netip.Addr{}, false
	}
	return a, true
}

// special addresses mean another thing on every node.
func special(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// serves reports whether the Service is there for the family of a: it has a
// cluster IP of it.
func (p *spec) serves(a netip.Addr) bool {
	return slices.ContainsFunc(p.clusterIPs, func(c netip.Addr) bool { return c.Is6() == a.Is6() })
}

func (svc *service) slice(name string) *slice {
	if i, found := svc.findSlice(name); found {
		return svc.slices[i]
	}
	return nil
}

func (svc *service) setSlice(s *slice) {
	i, found := svc.findSlice(s.name)
	if found {
		svc.slices[i] = s
		return
	}
	svc.slices = slices.Insert(svc.slices, i, s)
}

func (svc *service) deleteSlice(name string) {
	if i, found := svc.findSlice(name); found {
		svc.slices = slices.Delete(svc.slices, i, i+1)
	}
}

func (svc *service) findSlice(name string) (int, bool) {
	return slices.BinarySearchFunc(svc.slices, name, func(s *slice, name string) int { return strings.Compare(s.name, name) })
}

// usableSlice reports whether a slice can matter to any Service that is served.
func usableSlice(s *discoveryv1.EndpointSlice) bool {
	_, headless := s.Labels[corev1.IsHeadlessService]
	return !headless && s.Labels[discoveryv1.LabelServiceName] != "" &&
		(s.AddressType == discoveryv1.AddressTypeIPv4 || s.AddressType == discoveryv1.AddressTypeIPv6)
}
