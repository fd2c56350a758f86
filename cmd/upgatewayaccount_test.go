//go:build !agentonly

package cmd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/server"
)

// TestUpGatewayAccount: the processes of Gateways have a user, no capabilities and a
// credential of their own, also those that take over after `up` was killed, and serve
// certificates of Secrets.
func TestUpGatewayAccount(t *testing.T) {
	for _, engine := range []string{"native", "haproxy"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("haproxy"); err != nil && engine == "haproxy" {
				t.Skip("haproxy isn't installed")
			}
			u := newUpRig(t, "--gateway-engine", engine)
			u.start()
			makeGateway(t, u.gateways, "a")
			u.serves("a")
			first := u.gatewayPID("default/a")
			u.isUnprivileged(first)
			u.credentialIsNarrow()
			u.makeSecured("s")
			untilGood(t, &u.out, func() error { return u.handshake("s") })

			at, err := gatewayAddress(t, u.core, "a")
			if err != nil {
				t.Fatal(err)
			}
			u.kill()
			if err := askAt(t, u.ns, at); err != nil {
				t.Errorf("while there is no `up`: %v", err)
			}
			u.start()
			u.serves("a")
			again := u.gatewayPID("default/a")
			if again == first {
				t.Errorf("process %d still serves", first)
			}
			u.isUnprivileged(again)
			untilGood(t, &u.out, func() error { return u.handshake("s") })
			if warned := u.out.String(); strings.Contains(warned, "they can't have a user of their own") {
				t.Error(warned)
			}
		})
	}
}

// TestUpWithoutSetuid: where `up` may not change users, as in a unit of an earlier
// version, Gateways are served all the same, with the narrow credential.
func TestUpWithoutSetuid(t *testing.T) {
	t.Parallel()
	u := newUpRig(t)
	u.without = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN}
	u.start()
	makeGateway(t, u.gateways, "a")
	u.serves("a")
	if !strings.Contains(u.out.String(), "they can't have a user of their own") {
		t.Errorf("it doesn't say so:\n%s", u.out.String())
	}
	if got := statusOf(t, u.gatewayPID("default/a"))["Uid"]; got != "0\t0\t0\t0" {
		t.Errorf("user %q", got)
	}
	u.credentialIsNarrow()
}

// credentialLife has `up` issue credentials of Gateways for this time, and everybody look
// at them as often as fits.
const credentialLife = "FAIRWAY_TEST_CREDENTIAL_LIFE"

func init() {
	if life, err := time.ParseDuration(os.Getenv(credentialLife)); err == nil {
		server.CredentialLife, server.CredentialLook, transport.CertCallbackRefreshDuration = life, life/20, life/20
	}
}

// TestUpRenewsGatewayCredential: when the first credential of a Gateway's process is past,
// the process still hears of changes and reads Secrets, with no new start.
func TestUpRenewsGatewayCredential(t *testing.T) {
	for _, engine := range []string{"native", "haproxy"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("haproxy"); err != nil && engine == "haproxy" {
				t.Skip("haproxy isn't installed")
			}
			u := newUpRig(t, "--gateway-engine", engine)
			u.life = "20s"
			u.start()
			makeGateway(t, u.gateways, "a")
			u.makeSecured("s")
			u.serves("a")
			untilGood(t, &u.out, func() error { return u.handshake("s") })
			processes := []int{u.gatewayPID("default/a"), u.gatewayPID("default/s")}
			for range 2 {
				u.outliveCredential()
				u.leadElsewhere("a")
				u.replaceCertificate("s")
			}
			if now := []int{u.gatewayPID("default/a"), u.gatewayPID("default/s")}; !slices.Equal(now, processes) {
				t.Errorf("processes %v, were %v", now, processes)
			}
		})
	}
}

// outliveCredential waits until the API refuses the credential that is there now.
func (u *upRig) outliveCredential() {
	u.Helper()
	config := u.client(filepath.Join(u.state(), "gateway-node", server.CredentialConfig))
	text, err := os.ReadFile(config.CertFile)
	if err != nil {
		u.Fatal(err)
	}
	config.CertData, config.KeyData, config.CertFile, config.KeyFile = text, text, "", ""
	first := kubernetes.NewForConfigOrDie(config)
	untilGood(u.T, &u.out, func() error {
		_, err := first.CoreV1().Services("").List(u.Context(), metav1.ListOptions{})
		if err == nil {
			return errors.New("the credential is still good")
		}
		return nil
	})
}

// leadElsewhere changes a Gateway's route until that is in force.
func (u *upRig) leadElsewhere(name string) {
	u.Helper()
	routes := u.gateways.GatewayV1().HTTPRoutes("default")
	route, err := routes.Get(u.Context(), name, metav1.GetOptions{})
	if err != nil {
		u.Fatal(err)
	}
	host := gatewayv1.PreciseHostname(fmt.Sprintf("elsewhere-%d.example", route.Generation))
	change := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/rules/0/filters/0/requestRedirect/hostname", "value": %q}]`, host)
	if _, err := routes.Patch(u.Context(), name, types.JSONPatchType, change, metav1.PatchOptions{}); err != nil {
		u.Fatal(err)
	}
	at, err := gatewayAddress(u.T, u.core, name)
	if err != nil {
		u.Fatal(err)
	}
	untilGood(u.T, &u.out, func() error {
		where, err := ledTo(u.T, u.ns, at)
		if err == nil && !strings.Contains(where, string(host)) {
			err = fmt.Errorf("it leads to %s, want %s", where, host)
		}
		return err
	})
}

// replaceCertificate gives a Gateway's listener another one, from a Secret that nobody has
// read yet, and waits until clients get it.
func (u *upRig) replaceCertificate(name string) {
	u.Helper()
	before, err := u.presented(name)
	if err != nil {
		u.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		u.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		u.Fatal(err)
	}
	fresh := fmt.Sprint(name, template.SerialNumber)
	u.makeSecret(fresh, der, key)
	change := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/listeners/0/tls/certificateRefs/0/name", "value": %q}]`, fresh)
	if _, err := u.gateways.GatewayV1().Gateways("default").Patch(u.Context(), name, types.JSONPatchType, change, metav1.PatchOptions{}); err != nil {
		u.Fatal(err)
	}
	untilGood(u.T, &u.out, func() error {
		now, err := u.presented(name)
		if err == nil && now.Equal(before) {
			err = errors.New("the certificate is the one before")
		}
		return err
	})
}

// isUnprivileged looks at a process and at those that it has started.
func (u *upRig) isUnprivileged(pid int) {
	u.Helper()
	want := map[string]string{
		"Uid": "10260\t10260\t10260\t10260", "Gid": "10260\t10260\t10260\t10260", "Groups": "", "NoNewPrivs": "1",
		"CapInh": noCapabilities, "CapPrm": noCapabilities, "CapEff": noCapabilities, "CapAmb": noCapabilities,
	}
	for _, one := range append(childrenOf(u.T, pid), pid) {
		status := statusOf(u.T, one)
		for field, value := range want {
			if status[field] != value {
				u.Errorf("process %d (%s): %s is %q, want %q", one, status["Name"], field, status[field], value)
			}
		}
	}
}

const noCapabilities = "0000000000000000"

// statusOf reads /proc/PID/status.
func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

// credentialIsNarrow looks at who may read the credential and what it may do.
func (u *upRig) credentialIsNarrow() {
	u.Helper()
	dir := filepath.Join(u.state(), "gateway-node")
	for _, name := range []string{server.CredentialCert, server.CredentialConfig} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o400 {
			u.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		u.Errorf("%s: %v, %v", dir, info, err)
	}
	narrow, ctx := kubernetes.NewForConfigOrDie(u.client(filepath.Join(dir, server.CredentialConfig))), u.Context()
	if _, err := narrow.CoreV1().Services("").List(ctx, metav1.ListOptions{}); err != nil {
		u.Error(err)
	}
	_, list := narrow.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
	_, get := narrow.CoreV1().Secrets("kube-system").Get(ctx, "fairway-announce", metav1.GetOptions{})
	_, create := narrow.CoreV1().Services("default").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
	for what, err := range map[string]error{
		"list Secrets": list, "read a Secret": get, "make a Service": create,
		"delete a Node":      narrow.CoreV1().Nodes().Delete(ctx, "node", metav1.DeleteOptions{}),
		"delete a Namespace": narrow.CoreV1().Namespaces().Delete(ctx, "default", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			u.Errorf("%s: %v, want forbidden", what, err)
		}
	}
}

// makeSecured makes a Gateway whose certificate is in a Secret.
func (u *upRig) makeSecured(name string) {
	u.Helper()
	server := httptest.NewTLSServer(nil)
	server.Close()
	pair := server.TLS.Certificates[0]
	u.makeSecret(name, pair.Certificate[0], pair.PrivateKey)
	_, err := u.gateways.GatewayV1().Gateways("default").Create(u.Context(), &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{
			Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
			TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName(name)}}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		u.Fatal(err)
	}
}

// makeSecret makes one with a certificate.
func (u *upRig) makeSecret(name string, der []byte, key any) {
	u.Helper()
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		u.Fatal(err)
	}
	_, err = u.core.CoreV1().Secrets("default").Create(u.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		u.Fatal(err)
	}
}

// handshake connects with a Gateway's listener for TLS.
func (u *upRig) handshake(name string) error {
	_, err := u.presented(name)
	return err
}

// presented is the certificate that a Gateway's listener for TLS has.
func (u *upRig) presented(name string) (*x509.Certificate, error) {
	at, err := gatewayAddress(u.T, u.core, name)
	if err != nil {
		return nil, err
	}
	c, err := dialIn(u.ns)(u.Context(), "tcp", at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	secured := tls.Client(c, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true})
	if err := secured.HandshakeContext(u.Context()); err != nil {
		return nil, err
	}
	return secured.ConnectionState().PeerCertificates[0], secured.Close()
}
