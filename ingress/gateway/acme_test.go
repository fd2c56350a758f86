//go:build !race

package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/acme"
)

const (
	pebbleDirectory  = "https://127.0.0.1:14000/dir"
	pebbleManagement = "https://127.0.0.1:15000"
)

// TestACME: a certificate authority (pebble) validates a host at the gateway, by HTTP or by
// TLS, over IPv4 or IPv6, and the gateway serves the certificate. An attempt that fails
// leaves the certificate in place.
func TestACME(t *testing.T) {
	programs := buildPebble(t)
	c := newCluster(t)
	c.fill()
	c.annotate("gw", "fairway.dev/acme", "true")
	for i := range 2 { // ACME needs a listener's hostname; without it, one that lacks a certificate isn't served
		c.hostname("gw", i, "web.example")
	}
	c.ready = []*pod{c.start()}
	c.writeSlices()
	c.startGateway(os.Args[0])
	c.serving()
	c.await("a gateway that is ready", isReady)
	for _, test := range []struct{ challenge, host, address4, address6 string }{
		{"http-01", "web.example", "127.0.0.1", ""},
		{"tls-alpn-01", "web.example", "127.0.0.1", ""},
		{"http-01", "web.example", "", "::1"},
		{"tls-alpn-01", "web.example", "", "::1"},
	} {
		t.Run(test.challenge+" "+test.address4+test.address6, func(t *testing.T) {
			roots := startPebble(t, programs, test.address4, test.address6)
			secrets := c.core.CoreV1().Secrets(shop)
			told, evil := make(chan error, 10), make(chan error, 10)
			i := acme.New(acme.Options{
				Core: c.core, Directory: pebbleDirectory, Email: "admin@shop.example", Namespace: metav1.NamespaceSystem, Roots: roots,
				Types: []string{test.challenge}, Settle: 500 * time.Millisecond, Again: 200 * time.Millisecond, Tell: func(c acme.Certificate, err error) {
					map[bool]chan error{false: told, true: evil}[c.Secret.Namespace == "evil"] <- err
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); i.Run(ctx) }()
			defer func() { cancel(); <-ended }()

			// Somebody else's Secret is not touched.
			c.renewCertificate()
			name := types.NamespacedName{Namespace: shop, Name: "gw"}
			at := map[string][]types.NamespacedName{test.host: {name}, "nowhere.example": {name}}
			i.Want([]acme.Certificate{{Secret: name, Hosts: []string{test.host}, Kind: "Gateway", Object: name, At: at}})
			if err := <-told; err == nil || !strings.Contains(err.Error(), "somebody else's") || i.Failure(name) == nil {
				t.Fatalf("somebody else's Secret: %v", err)
			}
			c.must(secrets.Delete(t.Context(), "gw", metav1.DeleteOptions{}))
			for err := range told {
				if err == nil {
					break
				} else if !strings.Contains(err.Error(), "somebody else's") && !strings.Contains(err.Error(), "accountDoesNotExist") { // which pebble forgets when it ends
					t.Fatal(err)
				}
			}
			if i.Failure(name) != nil {
				t.Errorf("the failure stays: %v", i.Failure(name))
			}
			served := pebbleRoots(t, roots)
			c.await("the certificate", func(context.Context) bool {
				connection, err := tls.Dial("tcp", "127.0.0.1:20001", &tls.Config{ServerName: test.host, RootCAs: served})
				if err != nil {
					return false
				}
				return connection.Close() == nil
			})
			// Hosts that don't lead here fail, and the certificate that is there stays.
			before, err := secrets.Get(t.Context(), "gw", metav1.GetOptions{})
			c.must(err)
			i.Want([]acme.Certificate{{Secret: name, Hosts: []string{test.host, "nowhere.example"}, Kind: "Gateway", Object: name, At: at}})
			if err := <-told; err == nil {
				t.Error("a host that leads elsewhere gets a certificate")
			}
			i.Want(nil)
			after, err := secrets.Get(t.Context(), "gw", metav1.GetOptions{})
			c.must(err)
			if !slices.Equal(after.Data[corev1.TLSCertKey], before.Data[corev1.TLSCertKey]) {
				t.Error("a failure changed the certificate that was good")
			}
			// Another Gateway, and whoever it belongs to, gets none for a host that leads here.
			other := types.NamespacedName{Namespace: "evil", Name: "gw"}
			_, err = c.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				c.must(err)
			}
			i.Want([]acme.Certificate{{Secret: other, Hosts: []string{test.host}, Kind: "Gateway", Object: other, At: map[string][]types.NamespacedName{test.host: {other}}}})
			for err := range evil {
				if err == nil {
					t.Error("another tenant gets a certificate for the host")
				} else if strings.Contains(err.Error(), "accountDoesNotExist") { // as above
					continue
				}
				break
			}
			i.Want(nil)
			m, err := c.core.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), acme.Challenges, metav1.GetOptions{})
			if err != nil || len(m.Data) > 0 {
				t.Errorf("challenges stay: %v, %v", m.Data, err)
			}
			c.must(secrets.Delete(t.Context(), "gw", metav1.DeleteOptions{}))
		})
	}
}

// buildPebble builds the certificate authority and its names.
func buildPebble(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "github.com/letsencrypt/pebble/v2/cmd/pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv")
	build.Dir = filepath.Join("..", "..", "test", "pebble")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build pebble: %v\n%s", err, out)
	}
	return dir
}

// startPebble runs an authority that finds every host but nowhere.example at
// addresses of this machine. It returns who has signed its own certificate.
func startPebble(t *testing.T, programs, address4, address6 string) *x509.CertPool {
	t.Helper()
	dir := t.TempDir()
	cert, key := selfSigned(t, "127.0.0.1")
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
		"certificate": filepath.Join(dir, "cert.pem"), "privateKey": filepath.Join(dir, "key.pem"), "httpPort": plainPort, "tlsPort": securePort,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": key, "config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, exec.Command(filepath.Join(programs, "pebble-challtestsrv"), "-dnsserver", "127.0.0.1:8053", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "",
		"-management", "127.0.0.1:8055", "-defaultIPv4", address4, "-defaultIPv6", address6))
	pebble := exec.Command(filepath.Join(programs, "pebble"), "-config", filepath.Join(dir, "config.json"), "-dnsserver", "127.0.0.1:8053")
	pebble.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=20")
	run(t, pebble)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	await(t, "pebble", func() bool { _, err := fetch(roots, pebbleDirectory); return err == nil })
	await(t, "its names", func() bool {
		answer, err := http.Post("http://127.0.0.1:8055/set-default-ipv4", "", strings.NewReader(`{"ip":"`+address4+`"}`))
		if err != nil {
			return false
		}
		_ = answer.Body.Close() // nothing is read
		answer, err = http.Post("http://127.0.0.1:8055/set-servfail", "", strings.NewReader(`{"host":"nowhere.example"}`))
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil
	})
	return roots
}

// pebbleRoots are the authorities of the certificates that pebble gives.
func pebbleRoots(t *testing.T, roots *x509.CertPool) *x509.CertPool {
	t.Helper()
	text, err := fetch(roots, pebbleManagement+"/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	out := x509.NewCertPool()
	if !out.AppendCertsFromPEM(text) {
		t.Fatalf("no certificate: %s", text)
	}
	return out
}

func fetch(roots *x509.CertPool, url string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return io.ReadAll(answer.Body)
}

// run runs a program until the test is over.
func run(t *testing.T, command *exec.Cmd) {
	t.Helper()
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() }) // its end is ours
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for late := range wait.Tries(waitTimeout) {
		if so() {
			break
		}
		if late {
			t.Fatalf("no %s", what)
		}
	}
}

// selfSigned is a certificate for an address, in PEM.
func selfSigned(t *testing.T, address string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(address)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// hostname gives a listener one.
func (c *cluster) hostname(gateway string, listener int, host string) {
	c.Helper()
	patch := []byte(`[{"op":"add","path":"/spec/listeners/` + strconv.Itoa(listener) + `/hostname","value":"` + host + `"}]`)
	_, err := c.gateway.GatewayV1().Gateways(shop).Patch(c.Context(), gateway, types.JSONPatchType, patch, metav1.PatchOptions{})
	c.must(err)
}

// annotate has a Gateway ask for certificates.
func (c *cluster) annotate(gateway, name, value string) {
	c.Helper()
	patch := []byte(`{"metadata":{"annotations":{"` + name + `":"` + value + `"}}}`)
	_, err := c.gateway.GatewayV1().Gateways(shop).Patch(c.Context(), gateway, types.MergePatchType, patch, metav1.PatchOptions{})
	c.must(err)
}
