package engines

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/engine/haproxy"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/model"
)

// engine is what this test needs of one.
type engine interface {
	Apply(*model.Table) error
	Sockets() map[string]netip.AddrPort
	Close(context.Context)
}

// TestServiceLoadBalancer plays what the former service-loadbalancer did against
// every engine.
func TestServiceLoadBalancer(t *testing.T) {
	out := ingress.Compile(objects(t, "testdata/service-loadbalancer.yaml"), ingress.Options{
		Bind: func(_ types.NamespacedName, port uint16) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(port >> 8), byte(port)}), 0)
		},
		Endpoints: endpoints(t),
	})
	problems := fmt.Sprint(out.Problems)
	if len(out.Problems) != 1 || !strings.Contains(problems, "first") {
		t.Errorf("problems: %s", problems)
	}
	if s := out.Streams; len(s) != 1 || s[0].Port != 3306 || s[0].Backends[0].Service.Name != "mysql" {
		t.Errorf("streams: %+v", s)
	}
	for name, start := range map[string]func() (engine, error){
		Native:  func() (engine, error) { return native.New(native.Options{Drain: time.Second}) },
		HAProxy: func() (engine, error) { return haproxy.New(haproxy.Options{Drain: time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close(context.Background()) })
			if err := e.Apply(out.Table); err != nil {
				t.Fatal(err)
			}
			play(t, e.Sockets())
		})
	}
}

func play(t *testing.T, sockets map[string]netip.AddrPort) {
	for _, test := range []struct {
		name, url string
		want      string // answer and path that the endpoint sees
		least     int    // endpoints that answer 12 requests
		most      int
	}{
		{"by path, which is stripped", "http://lb.example/nginxsvc/a/b?c=d", "200 nginxsvc /a/b?c=d", 3, 3},
		{"by path alone", "http://lb.example/nginxsvc", "200 nginxsvc /", 3, 3},
		{"by another port", "http://lb.example/least:8080/x", "200 least /x", 1, 3},
		{"by host", "http://webapp.example.com/nginxsvc/x", "200 byhost /nginxsvc/x", 3, 3},
		{"TLS", "https://secure.example.com/x", "200 secured /x", 3, 3},
		{"not without TLS", "http://secure.example.com/x", "404  ", 0, 0},
		{"ACL", "http://lb.example/TEST-it/x", "200 acl /TEST-it/x", 3, 3},
		{"no prefix of a name", "http://lb.example/nginxsvcx", "404  ", 0, 0},
		{"by address", "http://lb.example/sticky/x", "200 sticky /x", 1, 1},
		{"by cookie", "http://lb.example/cookie/x", "200 cookie /x", 1, 1},
		{"least connections", "http://lb.example/least/x", "200 least /x", 1, 3},
		{"a wrong algorithm is left out", "http://lb.example/wrong/x", "200 wrong /x", 3, 3},
		{"nothing", "http://lb.example/", "404  ", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			port := ":80"
			if strings.HasPrefix(test.url, "https") {
				port = ":443"
			}
			c := client(sockets[ingress.IngressGateway.String()+port])
			var cookie string
			answered := map[string]bool{}
			for range 12 {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, test.url, nil)
				if err != nil {
					t.Fatal(err)
				}
				if cookie != "" {
					q.Header.Set("Cookie", cookie)
				}
				response, err := c.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close() // headers are enough
				h := response.Header
				if got := fmt.Sprintf("%d %s %s", response.StatusCode, h.Get("Service"), h.Get("Path")); got != test.want {
					t.Fatalf("%q, want %q", got, test.want)
				}
				if by := h.Get("Endpoint"); by != "" {
					answered[by] = true
				}
				if given := response.Cookies(); len(given) > 0 {
					if given[0].Name != "SERVERID" {
						t.Errorf("cookie %s", given[0].Name)
					}
					cookie = given[0].Name + "=" + given[0].Value
				}
			}
			if n := len(answered); n < test.least || n > test.most {
				t.Errorf("%d endpoints answered, want %d to %d", n, test.least, test.most)
			}
			if (test.name == "by cookie") != (cookie != "") {
				t.Errorf("cookie %q", cookie)
			}
		})
	}
}

func client(at netip.AddrPort) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // who answers is seen otherwise
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, at.String())
		},
	}}
}

// endpoints gives every Service three, which say who they are and what they are asked.
func endpoints(t *testing.T) func(types.NamespacedName, *corev1.ServicePort) []model.Endpoint {
	known := map[types.NamespacedName][]model.Endpoint{}
	return func(service types.NamespacedName, _ *corev1.ServicePort) []model.Endpoint {
		for i := range 3 {
			if len(known[service]) == 3 {
				break
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Service", service.Name)
				w.Header().Set("Path", q.RequestURI)
				w.Header().Set("Endpoint", fmt.Sprint(i))
			}))
			t.Cleanup(s.Close)
			known[service] = append(known[service], model.Endpoint{Addr: netip.MustParseAddrPort(s.Listener.Addr().String()), Weight: 1})
		}
		return slices.Clone(known[service])
	}
}

// objects reads a file of Services and ConfigMaps; in the namespace default, if
// none is said, there also is a certificate.
func objects(t *testing.T, file string) *ingress.Objects {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := &ingress.Objects{
		Services: map[types.NamespacedName]*corev1.Service{}, ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{},
		Secrets: map[types.NamespacedName]*corev1.Secret{{Namespace: "default", Name: "cert"}: {Data: pair(t)}},
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return o
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(document), "kind: ConfigMap") {
			m := &corev1.ConfigMap{}
			if err := yaml.UnmarshalStrict(document, m); err != nil {
				t.Fatal(err)
			}
			o.ConfigMaps[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = m
			continue
		}
		s := &corev1.Service{}
		if err := yaml.UnmarshalStrict(document, s); err != nil {
			t.Fatal(err)
		}
		s.Namespace = "default"
		o.Services[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
	}
}

func pair(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"*.example.com"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}
