package compile

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Certificates keeps the certificates that Secrets held when last they held
// one, so that a Secret that becomes bad doesn't end what works. Not for
// concurrent use.
type Certificates struct {
	known map[types.NamespacedName]certificate
}

type certificate struct {
	hash [sha256.Size]byte // of what it was read from
	pair *tls.Certificate
}

// NewCertificates returns an empty store.
func NewCertificates() *Certificates {
	return &Certificates{known: map[types.NamespacedName]certificate{}}
}

// read returns the certificate of a Secret. With an error, it may still return
// the last good one.
func (c *Certificates) read(name types.NamespacedName, s *corev1.Secret) (*tls.Certificate, error) {
	last := c.known[name].pair
	if s == nil {
		return last, fmt.Errorf("there is no Secret %s", name)
	}
	cert, key := s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]
	hash := sha256.Sum256(append(append([]byte{}, cert...), key...))
	if known, given := c.known[name]; given && known.hash == hash {
		return known.pair, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return last, fmt.Errorf("Secret %s: %s and %s are no certificate and its key: %w", name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err) //nolint:staticcheck // a kind's name
	}
	c.known[name] = certificate{hash, &pair}
	return &pair, nil
}

// The ways in which a reference may fail.
var (
	errKind         = errors.New("kind is not supported")
	errNotPermitted = errors.New("no ReferenceGrant allows it")
)

// certificate reads what a reference to a Secret leads to. Why it fails can be
// told by the errors above.
func (c *compiler) certificate(kind, namespace string, ref *gatewayv1.SecretObjectReference) (*tls.Certificate, error) {
	name := types.NamespacedName{Namespace: string(value(ref.Namespace, gatewayv1.Namespace(namespace))), Name: string(ref.Name)}
	if value(ref.Group, "") != "" || value(ref.Kind, "Secret") != "Secret" {
		return nil, fmt.Errorf("%s/%s %s: %w: it must be a Secret", value(ref.Group, ""), value(ref.Kind, ""), name, errKind)
	}
	if !c.grants.allow(kind, namespace, "", "Secret", name) {
		return nil, fmt.Errorf("Secret %s: %w", name, errNotPermitted) //nolint:staticcheck // a kind's name
	}
	return c.options.Certificates.read(name, c.secret(name))
}

// authorities returns what a reference to a ConfigMap (or Secret) with ca.crt holds.
func (c *compiler) authorities(group, kind string, name types.NamespacedName) ([]*x509.Certificate, error) {
	var text []byte
	switch {
	case group == "" && kind == "ConfigMap":
		m := c.configMap(name)
		if m == nil {
			return nil, fmt.Errorf("there is no ConfigMap %s", name)
		}
		text = []byte(m.Data["ca.crt"])
	case group == "" && kind == "Secret":
		s := c.secret(name)
		if s == nil {
			return nil, fmt.Errorf("there is no Secret %s", name)
		}
		text = s.Data["ca.crt"]
	default:
		return nil, fmt.Errorf("%s/%s %s: %w: it must be a ConfigMap or a Secret", group, kind, name, errKind)
	}
	list := certificatesIn(text)
	if len(list) == 0 {
		return nil, fmt.Errorf("%s %s: ca.crt holds no certificate", kind, name)
	}
	return list, nil
}

// certificatesIn are those of a text in PEM. What isn't one is passed over, as
// [x509.CertPool.AppendCertsFromPEM] does.
func certificatesIn(text []byte) []*x509.Certificate {
	var list []*x509.Certificate
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if one, err := x509.ParseCertificate(block.Bytes); err == nil {
			list = append(list, one)
		}
	}
	return list
}

// poolOf is a pool of authorities.
func poolOf(list []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool
}

// secret finds a Secret, and notes that the table depends on it.
func (c *compiler) secret(name types.NamespacedName) *corev1.Secret {
	c.out.Secrets[name] = struct{}{}
	return c.Secrets[name]
}

// configMap finds a ConfigMap, and notes that the table depends on it.
func (c *compiler) configMap(name types.NamespacedName) *corev1.ConfigMap {
	c.out.ConfigMaps[name] = struct{}{}
	return c.ConfigMaps[name]
}
