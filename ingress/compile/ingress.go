package compile

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/compile/host"
	"github.com/fairway-net/fairway/ingress/model"
)

// isDefaultClass is on the IngressClass of Ingresses that name none.
const isDefaultClass = "ingressclass.kubernetes.io/is-default-class"

// ingresses are all Ingresses that are served, in the making: they share the
// ports 80 and 443.
type ingresses struct {
	hosts   map[string]*ingressHost  // by hostname
	plain   map[string][]orderedRule // by hostname, as all below
	secure  map[string][]orderedRule
	through map[string][]orderedRule // hosts whose TLS goes on as it is
	files   bool                     // engines may have certificates in files
	http3   bool
	streams []Stream

	balanced bool // Services are served, too
	// Some host had a certificate, and some had other names or asked clients for theirs.
	certified, special bool
	// What Update needs: all Ingresses that are served, and their listeners.
	objects         map[types.NamespacedName]*networkingv1.Ingress
	byHost          map[string]map[types.NamespacedName]struct{}
	plainListener   *listener
	secureListeners map[string]*listener // by hostname
}

// compileIngresses makes listeners of Ingresses: one for each hostname with a
// certificate of its own, and one for all others.
func (c *compiler) compileIngresses() {
	if !c.serves(IngressGateway) {
		return
	}
	c.classes = c.ingressClasses()
	in := &ingresses{
		hosts: map[string]*ingressHost{}, plain: map[string][]orderedRule{}, secure: map[string][]orderedRule{}, through: map[string][]orderedRule{},
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
	read := c.compileAll(in, list)
	c.addOtherNames(in, list)
	for _, s := range read { // now that each name is known to be somebody's
		c.refs.resume(s.route)
		c.wantIngress(in, s)
		c.refs.end()
	}
	if in.balanced = c.compileBalanced(in); !in.balanced && len(list) == 0 {
		return
	}
	c.in = in
	c.out.Streams = append(c.out.Streams, in.streams...)
	result := &GatewayResult{Ports: []Port{{Number: 80, Protocol: corev1.ProtocolTCP}}}
	in.plainListener = &listener{rules: in.plain, byLength: true}
	c.ingressSocket(80, false, in.plainListener.finishAs("http", "", nil))
	certificates := in.certificates()
	if len(certificates)+len(in.through) > 0 || in.files {
		result.Ports = append(result.Ports, Port{Number: 443, Protocol: corev1.ProtocolTCP})
		var list []*model.Listener
		for hostname, record := range certificates {
			l := &listener{rules: in.secureRules(hostname), byLength: true}
			in.secureListeners[hostname] = l
			m := l.finishAs("https-"+hostname, hostname, []*tls.Certificate{record.Certificate})
			m.Clients = record.Clients
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

// certificates are the records by which listeners are made, by hostname.
func (in *ingresses) certificates() map[string]*host.Record {
	out := map[string]*host.Record{}
	for name := range in.hosts {
		if record := in.tls(name); record != nil && in.listenerOf(name) == name && len(in.through[name]) == 0 {
			out[name] = record
		}
	}
	return out
}

// secureRules are the rules of the listener for a hostname.
func (in *ingresses) secureRules(hostname string) map[string][]orderedRule {
	rules := map[string][]orderedRule{}
	if hostname != "" && !strings.HasPrefix(hostname, "*") { // of which there may be many
		if list := in.secure[hostname]; len(list) > 0 {
			rules[hostname] = list
		}
		return rules
	}
	for h, list := range in.secure {
		if in.listenerOf(h) == hostname {
			rules[h] = list
		}
	}
	return rules
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
	s.OneLabel = true
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
		if p.Protocol != corev1.ProtocolTCP && p.Protocol != "" { // a UDP port may have the same number
			continue
		}
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
		from := c.out.sources[name]
		if addr, err := netip.ParseAddr(c.Services[from.service].Spec.ClusterIP); err == nil && a.clusterIP {
			from.fixed = true
			p.Endpoints = []model.Endpoint{{Addr: netip.AddrPortFrom(addr, uint16(from.port.Port)), Weight: 1}}
		}
		c.out.addPool(&p, from)
	}
	c.refs.pool(p.Name)
	return p.Name
}
