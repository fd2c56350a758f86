package assess

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// completion adds what manifests leave out.
type completion struct {
	*ingress.Objects
	onlyCertificates bool
	added            []string
	pair             map[string][]byte
}

// Complete adds to manifests what they refer to and don't hold: classes, which are
// Fairway's then, Secrets with certificates, and Services if there are none at all. It
// returns what was added.
func Complete(o *ingress.Objects) ([]string, error) {
	c := &completion{Objects: o}
	err := c.complete()
	return c.added, err
}

// Certificates adds the Secrets and ConfigMaps alone that objects refer to, for callers that read none.
func Certificates(o *ingress.Objects) error {
	return (&completion{Objects: o, onlyCertificates: true}).complete()
}

// complete adds what there is to add.
func (c *completion) complete() error {
	o := c.Objects
	withoutServices := len(o.Services) == 0 && !c.onlyCertificates
	for _, g := range o.Gateways {
		c.gatewayClass(string(g.Spec.GatewayClassName))
		for _, l := range g.Spec.Listeners {
			if l.TLS == nil {
				continue
			}
			for _, ref := range l.TLS.CertificateRefs {
				namespace := g.Namespace
				if ref.Namespace != nil {
					namespace = string(*ref.Namespace)
				}
				if err := c.secret(types.NamespacedName{Namespace: namespace, Name: string(ref.Name)}); err != nil {
					return err
				}
			}
		}
	}
	for _, i := range o.Ingresses {
		c.ingressClass(classOf(i))
		for _, t := range i.Spec.TLS {
			if t.SecretName == "" {
				continue
			}
			if err := c.secret(types.NamespacedName{Namespace: i.Namespace, Name: t.SecretName}); err != nil {
				return err
			}
		}
		if err := c.annotations(i); err != nil {
			return err
		}
		if withoutServices {
			c.services(i)
		}
	}
	if withoutServices {
		for _, r := range o.HTTPRoutes {
			for _, rule := range r.Spec.Rules {
				for _, b := range rule.BackendRefs {
					if b.Port != nil && b.Namespace == nil {
						c.service(types.NamespacedName{Namespace: r.Namespace, Name: string(b.Name)}, corev1.ServicePort{Port: *b.Port})
					}
				}
			}
		}
	}
	return nil
}

// classOf is the class of an Ingress; "" if it names none.
func classOf(i *networkingv1.Ingress) string {
	if i.Spec.IngressClassName != nil {
		return *i.Spec.IngressClassName
	}
	return i.Annotations["kubernetes.io/ingress.class"]
}

// annotations adds the Secrets and ConfigMaps of its namespace that an Ingress's
// annotations name.
func (c *completion) annotations(i *networkingv1.Ingress) error {
	named := func(annotation string) (types.NamespacedName, bool) {
		text := i.Annotations[ingress.NginxPrefix+annotation]
		name := types.NamespacedName{Namespace: i.Namespace, Name: text}
		if namespace, short, found := strings.Cut(text, "/"); found {
			name = types.NamespacedName{Namespace: namespace, Name: short}
		}
		return name, text != "" && name.Namespace == i.Namespace
	}
	for _, annotation := range []string{"auth-tls-secret", "proxy-ssl-secret"} {
		if name, given := named(annotation); given {
			if err := c.secret(name); err != nil {
				return err
			}
		}
	}
	if name, given := named("auth-secret"); given && c.Secrets[name] == nil {
		c.Secrets[name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		c.add("Secret", name.String())
	}
	for _, annotation := range []string{"custom-headers", "auth-proxy-set-headers"} {
		if name, given := named(annotation); given && c.ConfigMaps[name] == nil {
			c.ConfigMaps[name] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
			c.add("ConfigMap", name.String())
		}
	}
	return nil
}

func (c *completion) add(kind, name string) { c.added = append(c.added, kind+" "+name) }

func (c *completion) gatewayClass(name string) {
	if c.onlyCertificates || slices.ContainsFunc(c.Classes, func(o *gatewayv1.GatewayClass) bool { return o.Name == name }) {
		return
	}
	c.Classes = append(c.Classes, &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: gatewayv1.GatewayClassSpec{ControllerName: ingress.Controller}})
	c.add("GatewayClass", name)
}

func (c *completion) ingressClass(name string) {
	if c.onlyCertificates || name == "" || slices.ContainsFunc(c.IngressClasses, func(o *networkingv1.IngressClass) bool { return o.Name == name }) {
		return
	}
	c.IngressClasses = append(c.IngressClasses, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: ingress.IngressController}})
	c.add("IngressClass", name)
}

// secret adds a Secret with a certificate, which nobody trusts.
func (c *completion) secret(name types.NamespacedName) error {
	if c.Secrets[name] != nil {
		return nil
	}
	if c.pair == nil {
		var err error
		if c.pair, err = pair(); err != nil {
			return err
		}
	}
	c.Secrets[name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Type: corev1.SecretTypeTLS, Data: c.pair}
	c.add("Secret", name.String())
	return nil
}

// services adds those that an Ingress names.
func (c *completion) services(i *networkingv1.Ingress) {
	backend := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			port := corev1.ServicePort{Name: b.Service.Port.Name, Port: b.Service.Port.Number}
			if port.Port == 0 {
				port.Port = 80
			}
			c.service(types.NamespacedName{Namespace: i.Namespace, Name: b.Service.Name}, port)
		}
	}
	backend(i.Spec.DefaultBackend)
	for _, r := range i.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for j := range r.HTTP.Paths {
			backend(&r.HTTP.Paths[j].Backend)
		}
	}
}

// service adds a Service, or a port to one that was added.
func (c *completion) service(name types.NamespacedName, port corev1.ServicePort) {
	s := c.Services[name]
	if s == nil {
		s = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		c.Services[name] = s
		c.add("Service", name.String())
	}
	same := func(p corev1.ServicePort) bool { return p.Name == port.Name && p.Port == port.Port }
	if !slices.ContainsFunc(s.Spec.Ports, same) {
		port.Protocol = corev1.ProtocolTCP
		s.Spec.Ports = append(s.Spec.Ports, port)
	}
}

// pair is a certificate that signs itself, and its key.
func pair() (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"ca.crt":                pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}
