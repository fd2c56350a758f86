//go:build !race

package gateway

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	vnetlink "github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/apiserver"
	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/internal/netns"
)

// The ports of the tests' own network namespace.
const (
	health                = "127.0.0.1:10260"
	plainPort, securePort = 20000, 20001 // of the engine
	webPort, grpcPort     = 8080, 9090   // of pods
	shop                  = "shop"
	maxPods               = 200
)

// prepare gives the namespace an address for each pod.
func prepare(ns *netns.NS) error {
	h, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(lo); err != nil {
		return err
	}
	for i := range maxPods {
		a, err := vnetlink.ParseAddr(podAddress(i).String() + "/32")
		if err != nil {
			return err
		}
		if err := h.AddrAdd(lo, a); err != nil {
			return fmt.Errorf("add %s: %w", a, err)
		}
	}
	return nil
}

func podAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}) }

// cluster is an API server, and pods that aren't in it: only in EndpointSlices.
type cluster struct {
	*testing.T
	core       *kubernetes.Clientset
	gateway    *versioned.Clientset
	kubeconfig string
	next       int         // address
	process    *os.Process // that serves
	ready      []*pod
	ending     []*pod
}

func newCluster(t *testing.T) *cluster {
	config := apiserver.DefaultConfig()
	config.DataDir, config.Port, config.ServiceCIDRs = t.TempDir(), 0, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	server, err := apiserver.Start(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close API server: %v", err)
		}
	})
	c := &cluster{T: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	api := rest.CopyConfig(server.LoopbackConfig())
	api.QPS, api.ContentType, api.AcceptContentTypes = -1, "application/json", "application/json"
	c.must(writeKubeconfig(api, c.kubeconfig))
	c.core = kubernetes.NewForConfigOrDie(api)
	c.gateway = versioned.NewForConfigOrDie(api)
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func writeKubeconfig(api *rest.Config, path string) error {
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{
		Server: api.Host, CertificateAuthorityData: api.CAData, InsecureSkipTLSVerify: api.Insecure, TLSServerName: api.ServerName,
	}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: api.BearerToken, ClientCertificateData: api.CertData, ClientKeyData: api.KeyData}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	return clientcmd.WriteToFile(*out, path)
}

func parse[T any](c *cluster, text string) *T {
	c.Helper()
	out := new(T)
	c.must(yaml.UnmarshalStrict([]byte(text), out))
	return out
}

// fill makes the Gateway with all that belongs to it. What the controller makes
// of Gateways is made here too.
func (c *cluster) fill() {
	ctx := c.Context()
	_, err := c.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.core.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.gateway.GatewayV1().GatewayClasses().Create(ctx, &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: ingress.Controller},
	}, metav1.CreateOptions{})
	c.must(err)
	c.renewCertificate()
	_, err = c.gateway.GatewayV1().Gateways(shop).Create(ctx, parse[gatewayv1.Gateway](c, `
metadata: {name: gw}
spec:
  gatewayClassName: fairway
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: gw}]}}
`), metav1.CreateOptions{})
	c.must(err)
	for name, ports := range map[string][]corev1.ServicePort{
		ingress.ServiceName("gw"): {
			{Name: "http", Port: 80, TargetPort: intstr.FromInt32(plainPort)}, {Name: "https", Port: 443, TargetPort: intstr.FromInt32(securePort)},
		},
		"web":    {{Name: "http", Port: 80}},
		"socket": {{Name: "http", Port: 80}},
		"grpc":   {{Name: "grpc", Port: 80, AppProtocol: ptr.To("kubernetes.io/h2c")}},
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{gatewayv1.GatewayNameLabelKey: "gw"}}, Spec: corev1.ServiceSpec{Ports: ports}}
		_, err = c.core.CoreV1().Services(shop).Create(ctx, s, metav1.CreateOptions{})
		c.must(err)
	}
	c.route("web", 0, "web.example")
	c.route("socket", 0, "socket.example")
	_, err = c.gateway.GatewayV1().GRPCRoutes(shop).Create(ctx, parse[gatewayv1.GRPCRoute](c, `
metadata: {name: grpc}
spec: {parentRefs: [{name: gw}], hostnames: [grpc.example], rules: [{backendRefs: [{name: grpc, port: 80}]}]}
`), metav1.CreateOptions{})
	c.must(err)
	c.slice("socket", "http", webPort, []*pod{c.start()}, nil)
}

// route makes or changes a route with a number of rules, all to one Service.
func (c *cluster) route(name string, rules int, host string) {
	c.Helper()
	text := fmt.Sprintf("metadata: {name: %s}\nspec:\n  parentRefs: [{name: gw}]\n  hostnames: [%s]\n  rules:\n", name, host)
	for i := range rules {
		text += fmt.Sprintf("  - {matches: [{path: {value: /%d}}], backendRefs: [{name: %s, port: 80}]}\n", i, name)
	}
	text += fmt.Sprintf("  - {backendRefs: [{name: %s, port: 80}]}\n", name)
	r := parse[gatewayv1.HTTPRoute](c, text)
	routes := c.gateway.GatewayV1().HTTPRoutes(shop)
	now, err := routes.Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		_, err = routes.Create(c.Context(), r, metav1.CreateOptions{})
	} else {
		r.ResourceVersion = now.ResourceVersion
		_, err = routes.Update(c.Context(), r, metav1.UpdateOptions{})
	}
	c.must(err)
}

// renewCertificate replaces the Gateway's certificate.
func (c *cluster) renewCertificate() {
	c.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"web.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	c.must(err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	c.must(err)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "gw"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}}
	secrets := c.core.CoreV1().Secrets(shop)
	if _, err = secrets.Update(c.Context(), s, metav1.UpdateOptions{}); err != nil {
		_, err = secrets.Create(c.Context(), s, metav1.CreateOptions{})
	}
	c.must(err)
}

// pod is a server for HTTP and one for gRPC at an address of its own.
type pod struct {
	address netip.Addr
	web     *http.Server
	grpc    *grpc.Server
}

func (c *cluster) start() *pod {
	c.Helper()
	p := &pod{address: podAddress(c.next % maxPods), grpc: grpc.NewServer()}
	c.next++
	healthpb.RegisterHealthServer(p.grpc, grpchealth.NewServer())
	p.web = &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}
	for port, serve := range map[uint16]func(net.Listener) error{webPort: p.web.Serve, grpcPort: p.grpc.Serve} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(p.address, port).String())
		c.must(err)
		go func() { _ = serve(l) }() // until it is stopped
	}
	c.Cleanup(func() { _ = p.web.Close(); p.grpc.Stop() })
	return p
}

// answer echoes a body, or lines once the client upgrades.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		_, _ = io.Copy(w, r.Body) // a failure shows at the client
		return
	}
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "websocket")
	w.Header().Set("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") // to that of RFC 6455, 1.3
	w.WriteHeader(http.StatusSwitchingProtocols)
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	for scanner := bufio.NewScanner(buffered); scanner.Scan(); {
		if _, err := fmt.Fprintln(c, scanner.Text()); err != nil {
			return
		}
	}
}

// stop ends a pod as Kubernetes does: it takes nothing new and answers what it has.
func (p *pod) stop() {
	_ = p.web.Shutdown(context.Background()) // it waits as long as it takes
	p.grpc.GracefulStop()
}

// slice writes a Service's EndpointSlice.
func (c *cluster) slice(service, name string, port int32, ready, ending []*pod) {
	c.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(name), Port: ptr.To(port)}},
	}
	for _, p := range ready {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	for _, p := range ending {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.address.String()}, Conditions: discoveryv1.EndpointConditions{
			Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true),
		}})
	}
	slices := c.core.DiscoveryV1().EndpointSlices(shop)
	_, err := slices.Update(c.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = slices.Create(c.Context(), s, metav1.CreateOptions{})
	}
	c.must(err)
}

func (c *cluster) writeSlices() {
	c.Helper()
	c.slice("web", "http", webPort, c.ready, c.ending)
	c.slice("grpc", "grpc", grpcPort, c.ready, c.ending)
}

// roll replaces every pod by a new one, one at a time.
func (c *cluster) roll() {
	c.Helper()
	for range len(c.ready) {
		old := c.ready[0]
		c.ready = append(c.ready[1:], c.start())
		c.ending = []*pod{old}
		c.writeSlices()
		old.stop() // at once: that the gateway may not know yet must do no harm
		c.ending = nil
		c.writeSlices()
	}
}
