package convert

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// listeners are what the Ingresses of a namespace need of its Gateway.
type listeners struct {
	plain   bool
	secrets map[string]string // by host
	// annotations are of programs that look at Gateways.
	annotations map[string]string
}

func (c *conversion) listenersOf(namespace string) *listeners {
	if c.listeners[namespace] == nil {
		c.listeners[namespace] = &listeners{secrets: map[string]string{}, annotations: map[string]string{}}
	}
	return c.listeners[namespace]
}

// certificates notes the Secrets of an Ingress: the first one of a host counts,
// as it does for Ingresses.
func (i *one) certificates() {
	l := i.listenersOf(i.o.Namespace)
	for j, t := range i.o.Spec.TLS {
		if t.SecretName == "" {
			i.left("spec.tls[%d].secretName: is empty: a listener needs a certificate of its own", j)
			continue
		}
		hosts := t.Hosts
		if len(hosts) == 0 {
			hosts = []string{""}
		}
		for _, h := range hosts {
			h = strings.ToLower(h)
			i.secured[h] = true
			switch first := l.secrets[h]; first {
			case "", t.SecretName:
				l.secrets[h] = t.SecretName
			default:
				i.left("spec.tls[%d].secretName: host %q has the certificate %s already, of an older Ingress", j, h, first)
			}
		}
	}
}

// mostListeners is how many listeners a Gateway may have.
const mostListeners = 64

// gateways writes a Gateway for each namespace.
func (c *conversion) gateways() {
	var namespaces []string
	for n, l := range c.listeners {
		if l.plain || len(l.secrets) > 0 {
			namespaces = append(namespaces, n)
		}
	}
	slices.Sort(namespaces)
	for _, namespace := range namespaces {
		g := &gatewayv1.Gateway{
			TypeMeta:   metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.options.Gateway},
		}
		if kept := c.listeners[namespace].annotations; len(kept) > 0 {
			g.Annotations = kept
		}
		g.Spec.GatewayClassName = gatewayv1.ObjectName(c.options.GatewayClass)
		g.Spec.Listeners = c.listeners[namespace].list()
		if n := len(g.Spec.Listeners); n > mostListeners {
			c.out.Left = append(c.out.Left, fmt.Sprintf("Gateway %s/%s: %d listeners, and %d are the most: move some to a ListenerSet", namespace, g.Name, n, mostListeners))
		}
		c.out.Gateways = append(c.out.Gateways, g)
	}
	if n := len(c.out.Gateways); n > 1 {
		c.out.Left = append(c.out.Left, fmt.Sprintf("%d namespaces have a Gateway each, with an address of its own; Ingresses shared one", n))
	}
}

func (l *listeners) list() []gatewayv1.Listener {
	list := []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}
	var hosts []string
	for h := range l.secrets {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	for _, h := range hosts {
		mode := gatewayv1.TLSModeTerminate
		listener := gatewayv1.Listener{Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, TLS: &gatewayv1.ListenerTLSConfig{
			Mode: &mode, CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName(l.secrets[h])}},
		}}
		if h != "" {
			hostname := gatewayv1.Hostname(h)
			listener.Hostname, listener.Name = &hostname, gatewayv1.SectionName("https-"+label(h))
		}
		list = append(list, listener)
	}
	return list
}

// label is a host as part of a name.
func label(host string) string {
	if host == "" {
		return "all-hosts"
	}
	if suffix, found := strings.CutPrefix(host, "*."); found {
		return "wildcard--" + suffix // no name of a host begins like this
	}
	return host
}
