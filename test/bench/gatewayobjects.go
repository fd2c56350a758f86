package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	routes "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

const (
	gatewayObject = "gw"
	hotHosts      = 100 // that get requests
)

// gatewayCertificate is for all hosts, of P-256, self-signed.
type gatewayCertificate struct {
	cert, key string // PEM
	roots     *x509.CertPool
}

func newGatewayCertificate() (*gatewayCertificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"*.example.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	c := &gatewayCertificate{
		cert:  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		key:   string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
		roots: x509.NewCertPool(),
	}
	c.roots.AppendCertsFromPEM([]byte(c.cert))
	return c, nil
}

// prepare makes the endpoints, the Gateway, and what changes are measured with.
func (g *gateways) prepare(ctx context.Context) (err error) {
	if g.answers, err = newAnswers(g.site.pods.Host); err != nil {
		return err
	}
	if g.certificate, err = newGatewayCertificate(); err != nil {
		return err
	}
	config := rest.CopyConfig(g.api.config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	if g.api.gateway, err = versioned.NewForConfig(config); err != nil {
		return fmt.Errorf("make client for Gateway API: %w", err)
	}
	if err := g.nodeObject(ctx); err != nil {
		return err
	}
	_, err = g.api.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: gatewayObject}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte(g.certificate.cert), corev1.TLSPrivateKeyKey: []byte(g.certificate.key)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Secret: %w", err)
	}
	_, err = g.api.gateway.GatewayV1().Gateways(namespace).Create(ctx, &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: gatewayObject},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{
			{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType},
			{Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayObject}}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Gateway: %w", err)
	}
	if err := g.findPorts(ctx); err != nil {
		return err
	}
	for _, name := range []string{"turn-a", "turn-b", "moves"} {
		s, err := g.addService(ctx, name)
		if err != nil {
			return err
		}
		g.probes = append(g.probes, s)
	}
	return errors.Join(g.writeRoute(ctx, "turn", "turn.example.com", "turn-a", "/"), g.writeRoute(ctx, "moves", "moves.example.com", "moves", "/"))
}

// findPorts waits for the Gateway's Service, which says where engines listen.
func (g *gateways) findPorts(ctx context.Context) error {
	return poll(ctx, startTimeout, 50*time.Millisecond, func() error {
		s, err := g.api.client.CoreV1().Services(namespace).Get(ctx, ingress.ServiceName(gatewayObject), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("wait for the Gateway's Service: %w", err)
		}
		g.ports = map[int32]uint16{}
		for _, p := range s.Spec.Ports {
			g.ports[p.Port] = uint16(p.TargetPort.IntValue())
		}
		if g.ports[80] == 0 || g.ports[443] == 0 {
			return errors.New("wait for the Gateway's Service: it lacks a port")
		}
		return nil
	})
}

func (g *gateways) addService(ctx context.Context, name string) (*service, error) {
	s, err := g.api.createService(ctx, name, corev1.ProtocolTCP, answerPort)
	if err != nil {
		return nil, err
	}
	return s, g.api.createSlice(ctx, s, corev1.ProtocolTCP, answerPort, g.api.world.addresses(1))
}

// addRoutes adds routes, each with a host and a Service of its own. Some of them,
// all over the table, get the requests.
func (g *gateways) addRoutes(ctx context.Context, n int) error {
	first := g.routes
	added := make([]*service, n)
	progress := newProgress(g.api.progress, "routes", n)
	defer progress.end()
	err := each(n, writers, func(i int) (err error) {
		defer progress.step()
		name := fmt.Sprintf("r%d", first+i)
		if added[i], err = g.addService(ctx, name); err != nil {
			return err
		}
		return g.writeRoute(ctx, name, name+".example.com", name, "/")
	})
	if err != nil {
		return err
	}
	g.routes += n
	g.api.world.services = append(g.api.world.services, added...)
	g.hot = nil
	for i := 0; i < g.routes && len(g.hot) < hotHosts; i += max(1, g.routes/hotHosts) {
		g.hot = append(g.hot, g.api.world.services[i])
	}
	return nil
}

// settled waits until the controller has written the status of every route: until
// then the API server is as busy with that as with any change that is measured.
func (g *gateways) settled(ctx context.Context) error {
	return poll(ctx, startTimeout, time.Second, func() error {
		list, err := g.routesOf().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return fmt.Errorf("wait for statuses of routes: %w", err)
		}
		for i := range list.Items {
			if len(list.Items[i].Status.Parents) == 0 {
				return fmt.Errorf("wait for statuses of routes: HTTPRoute %s has none", list.Items[i].Name)
			}
		}
		return nil
	})
}

func (g *gateways) routesOf() routes.HTTPRouteInterface {
	return g.api.gateway.GatewayV1().HTTPRoutes(namespace)
}

func isConflict(err error) bool { return apierrors.IsConflict(err) }
