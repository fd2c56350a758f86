//go:build !agentonly

package cmd

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/apiserver"
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

// TestGatewayCredentialIsDue: it is renewed when half of its life is over, when the clock
// was set back, and when the server began anew.
func TestGatewayCredentialIsDue(t *testing.T) {
	t.Parallel()
	var server *apiserver.Server
	a := &gatewayAccount{server: func() *apiserver.Server { return server }, issued: time.Now()}
	for after, want := range map[time.Duration]bool{0: false, time.Hour: false, gatewayLife / 2: true, gatewayLife: true, -time.Hour: true} {
		if got := a.due(a.issued.Add(after)); got != want {
			t.Errorf("after %s: %v", after, got)
		}
	}
	if server = new(apiserver.Server); !a.due(a.issued) {
		t.Error("another server has begun")
	}
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
	for _, name := range []string{gatewayCertFile, gatewayConfigFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o400 {
			u.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		u.Errorf("%s: %v, %v", dir, info, err)
	}
	narrow, ctx := kubernetes.NewForConfigOrDie(u.client(filepath.Join(dir, gatewayConfigFile))), u.Context()
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
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		u.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}}
	_, err = u.core.CoreV1().Secrets("default").Create(u.Context(), secret, metav1.CreateOptions{})
	if err == nil {
		_, err = u.gateways.GatewayV1().Gateways("default").Create(u.Context(), &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{
				Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
				TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName(name)}}},
			}}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		u.Fatal(err)
	}
}

// handshake connects with a Gateway's listener for TLS.
func (u *upRig) handshake(name string) error {
	at, err := gatewayAddress(u.T, u.core, name)
	if err != nil {
		return err
	}
	c, err := dialIn(u.ns)(u.Context(), "tcp", at)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	secured := tls.Client(c, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true})
	return errors.Join(secured.HandshakeContext(u.Context()), secured.Close())
}
