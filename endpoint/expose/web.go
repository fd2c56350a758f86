package expose

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Web is how a Service is reached by HTTP: an Ingress.
type Web struct {
	Hosts []string // "www.example.com", "*.example.com"
	Path  string   // what paths begin with; "" is all
	// TLS is "auto" for certificates by ACME, the name of a Secret, or CERT,KEY, two PEM
	// files; "" is none.
	TLS string
	// Cert and Key are the contents of the two files.
	Cert, Key []byte
}

const (
	ingressClass   = "fairway"
	annotationACME = "fairway.dev/acme"
	automaticTLS   = "auto"
)

// Files are the names of the files that TLS consists of; false if it isn't files.
func (w Web) Files() (cert, key string, is bool) { return strings.Cut(w.TLS, ",") }

// Ingress returns the Ingress of the hosts and the Secret of a certificate in files; nil
// for what isn't asked for. An error names the field.
func (r Request) Ingress(service *corev1.Service) (*networkingv1.Ingress, *corev1.Secret, error) {
	w := r.Web
	if len(w.Hosts) == 0 {
		if w.TLS != "" || w.Path != "" {
			return nil, nil, errors.New("--tls and --path belong to --host, which isn't given")
		}
		return nil, nil, nil
	}
	if service.Spec.Ports[0].Protocol != corev1.ProtocolTCP {
		return nil, nil, fmt.Errorf("--host: HTTP needs --protocol TCP, not %s", service.Spec.Ports[0].Protocol)
	}
	if w.Path != "" && !strings.HasPrefix(w.Path, "/") {
		return nil, nil, fmt.Errorf("--path %q: must begin with /", w.Path)
	}
	i := &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, Labels: madeHere()},
	}
	class, prefix, path := ingressClass, networkingv1.PathTypePrefix, w.Path
	if path == "" {
		path = "/"
	}
	i.Spec.IngressClassName = &class
	for n, host := range w.Hosts {
		if problems := hostProblems(host); len(problems) > 0 {
			return nil, nil, fmt.Errorf("--host %q: %s", host, problems[0])
		}
		if slices.Contains(w.Hosts[:n], host) {
			return nil, nil, fmt.Errorf("--host %q: is there twice", host)
		}
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: path, PathType: &prefix, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: r.Name, Port: networkingv1.ServiceBackendPort{Number: service.Spec.Ports[0].Port},
			}}}},
		}}})
	}
	secret, err := r.secret(i)
	return i, secret, err
}

// secret has the Ingress use TLS; it returns the Secret to write, if there is one.
func (r Request) secret(i *networkingv1.Ingress) (*corev1.Secret, error) {
	name, made := r.Web.TLS, (*corev1.Secret)(nil)
	_, _, files := r.Web.Files()
	switch {
	case name == "":
		return nil, nil
	case name == automaticTLS:
		name = r.Name + "-tls"
		i.Annotations = map[string]string{annotationACME: "true"}
	case files:
		name = r.Name + "-tls"
		made = &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: madeHere()},
			Type:       corev1.SecretTypeTLS,
			Data:       map[string][]byte{corev1.TLSCertKey: r.Web.Cert, corev1.TLSPrivateKeyKey: r.Web.Key},
		}
	default:
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("--tls %q: must be auto, the name of a Secret, or CERTFILE,KEYFILE", name)
		}
	}
	i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: r.Web.Hosts, SecretName: name}}
	return made, nil
}

func hostProblems(host string) []string {
	if strings.HasPrefix(host, "*.") {
		return validation.IsWildcardDNS1123Subdomain(host)
	}
	return validation.IsDNS1123Subdomain(host)
}

// managedBy is the label of Ingresses and Secrets that are made here, and only of them
// may they be overwritten or removed.
const managedBy = "app.kubernetes.io/managed-by"

func madeHere() map[string]string { return map[string]string{managedBy: Manager} }
