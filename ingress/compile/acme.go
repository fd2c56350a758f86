package compile

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// AnnotationACME, "true" on a Gateway, a ListenerSet or an Ingress, has the
// certificates of its listeners obtained and kept in the Secrets that it names.
const AnnotationACME = "fairway.dev/acme"

// What the names of entries begin with in the ConfigMap of challenges.
const (
	challengeHTTP = "http-01."
	challengeTLS  = "tls-alpn-01."
	challengeAt   = "at." // and a token or host: the Gateways that alone answer
)

// ChallengesName is what engines expect the ConfigMap of challenges to be called.
const ChallengesName = "fairway-acme-challenges"

// Wanted is a certificate that is to be obtained.
type Wanted struct {
	Secret types.NamespacedName
	Hosts  []string // sorted
	Kind   string
	Object types.NamespacedName
	// At are the Gateways to which each host leads; IngressGateway of Ingresses.
	At map[string][]types.NamespacedName
}

// wantsACME reads the annotation.
func (c *compiler) wantsACME(kind string, o metav1.Object) bool {
	switch text := o.GetAnnotations()[AnnotationACME]; text {
	case "true":
		return true
	case "", "false":
	default:
		c.problem(kind, nameOf(o), ReasonInvalid, fmt.Sprintf("annotation %s: %q: must be true or false", AnnotationACME, text))
	}
	return false
}

// wantCertificate notes that a certificate is to be obtained; why it can't be is a
// problem of the object.
func (c *compiler) wantCertificate(kind string, o metav1.Object, gateway, secret types.NamespacedName, hosts []string, at string) bool {
	wrong := ""
	switch {
	case secret.Name == "":
		wrong = "ACME needs the name of a Secret for the certificate"
	case secret.Namespace != o.GetNamespace():
		wrong = "ACME keeps certificates in the namespace of the " + kind + " only"
	case len(hosts) == 0 || slices.Contains(hosts, ""):
		wrong = "ACME needs a hostname"
	case slices.ContainsFunc(hosts, func(h string) bool { return strings.HasPrefix(h, "*") }):
		wrong = "ACME by HTTP and TLS gives no certificate for a wildcard"
	}
	if wrong != "" {
		c.problem(kind, nameOf(o), ReasonInvalid, at+": "+wrong)
		return false
	}
	i := slices.IndexFunc(c.out.Wanted, func(w Wanted) bool { return w.Secret == secret })
	if i < 0 {
		i = len(c.out.Wanted)
		c.out.Wanted = append(c.out.Wanted, Wanted{Secret: secret, Kind: kind, Object: nameOf(o), At: map[string][]types.NamespacedName{}})
	}
	w := &c.out.Wanted[i]
	w.Hosts = append(w.Hosts, hosts...)
	for _, h := range hosts {
		if !slices.Contains(w.At[h], gateway) {
			w.At[h] = append(w.At[h], gateway)
		}
	}
	slices.Sort(w.Hosts)
	w.Hosts = slices.Compact(w.Hosts)
	return true
}

// wantListener has the certificate of a listener obtained, if that is asked for, and if the
// host is its namespace's: first is the listener that the hostname belongs to, at any port.
func (c *compiler) wantListener(l, first *listener, at string) {
	kind, namespace := l.owner()
	o := l.object()
	if l.mode() == model.Passthrough || l.spec.TLS == nil || !l.accepted || !c.wantsACME(kind, o) {
		return
	}
	secret := types.NamespacedName{Namespace: namespace}
	if refs := l.spec.TLS.CertificateRefs; len(refs) > 0 && value(refs[0].Kind, "Secret") == "Secret" && value(refs[0].Group, "") == "" {
		secret.Name = string(refs[0].Name)
		secret.Namespace = string(value(refs[0].Namespace, gatewayv1.Namespace(namespace)))
	}
	if _, by := first.owner(); by != namespace {
		c.problem(kind, nameOf(o), ReasonConflict, fmt.Sprintf("%s: no certificate is obtained for host %q, which belongs to listener %s", at, l.hostname, first.title()))
		return
	}
	l.awaitsACME = c.wantCertificate(kind, o, l.gateway.name, secret, []string{l.hostname}, at)
}

// wantIngress has the certificates of an Ingress obtained, if that is asked for: for its
// hosts that belong to its namespace. Others' would be a certificate, with its key, in
// another tenant's hands.
func (c *compiler) wantIngress(in *ingresses, s *ingressSource) {
	if s.canary != nil || !c.wantsACME("Ingress", s.object) {
		return
	}
	for i, t := range s.object.Spec.TLS {
		at, refused := fmt.Sprintf("spec.tls[%d]", i), false
		var hosts []string
		for _, h := range t.Hosts {
			h = strings.ToLower(h)
			if by := in.server(h); by.Name != "" && by.Namespace != s.name().Namespace {
				c.problem("Ingress", s.name(), ReasonConflict, fmt.Sprintf("%s: no certificate is obtained for host %q, which belongs to Ingress %s", at, h, by))
				refused = true
				continue
			}
			hosts = append(hosts, h)
		}
		if len(hosts) > 0 || !refused {
			c.wantCertificate("Ingress", s.object, IngressGateway, types.NamespacedName{Namespace: s.name().Namespace, Name: t.SecretName}, hosts, at)
		}
	}
}

// server is the Ingress that a host belongs to: the one with its paths, or else with those of
// its wildcard, or else the one that names it.
func (in *ingresses) server(name string) types.NamespacedName {
	for _, covers := range covering(name) {
		if h := in.ownerOfPaths(covers); h != nil && covers != "" {
			return h.record.By
		}
	}
	return in.at(name).record.By
}

// readChallenges reads what a certificate authority may look for.
func (c *compiler) readChallenges() *model.Challenges {
	if c.options.Challenges.Name == "" {
		return nil
	}
	m := c.configMap(c.options.Challenges)
	if m == nil || len(m.Data) == 0 {
		return nil
	}
	out := &model.Challenges{Tokens: map[string]string{}, Certificates: map[string]*tls.Certificate{}, At: map[string]string{}}
	for key, text := range m.Data {
		if token, ok := strings.CutPrefix(key, challengeHTTP); ok {
			out.Tokens[token] = text
		}
		if one, ok := strings.CutPrefix(key, challengeAt); ok {
			out.At[one] = text
		}
		if host, ok := strings.CutPrefix(key, challengeTLS); ok {
			if pair, err := tls.X509KeyPair([]byte(text), []byte(text)); err == nil {
				out.Certificates[strings.ToLower(host)] = &pair
			}
		}
	}
	return out
}
