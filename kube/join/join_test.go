package join_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/controller/nodecert"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/join"
)

// cluster is a server with its controllers.
type cluster struct {
	*testing.T
	server *apiserver.Server
	admin  kubernetes.Interface
	life   atomic.Int64 // of machines' certificates, in nanoseconds; 0 is what the server says
}

// Sign implements nodecert.Signer.
func (c *cluster) Sign(request *x509.CertificateRequest, life time.Duration, after time.Time) ([]byte, error) {
	return c.server.MachineSigner().Sign(request, max(life, time.Duration(c.life.Load())), after)
}

func start(t *testing.T) *cluster {
	t.Helper()
	config := apiserver.DefaultConfig()
	config.DataDir, config.Port = t.TempDir(), 0
	server, err := apiserver.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, server: server}
	if c.admin, err = kubernetes.NewForConfig(server.LoopbackConfig()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- controller.Run(ctx, server.LoopbackConfig(), controller.Options{Signer: c, RootCA: server.CA(), NodeGrace: 2 * time.Second})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *cluster) token(expires time.Time) join.Token {
	c.Helper()
	hash, err := join.HashPEM(c.server.CA())
	if err != nil {
		c.Fatal(err)
	}
	token := join.NewToken(hash)
	_, err = c.admin.CoreV1().Secrets("kube-system").Create(c.Context(), token.Object("", expires), metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return token
}

func (c *cluster) options(node string, token join.Token) join.Options {
	return join.Options{Server: c.server.URL(), Token: token.String(), Node: node, Dir: c.TempDir(), Version: apiserver.KubernetesVersion}
}

func (c *cluster) client(dir string) kubernetes.Interface {
	c.Helper()
	config, err := kube.Config(join.Kubeconfig(dir))
	if err != nil {
		c.Fatal(err)
	}
	client, err := kube.Client(config)
	if err != nil {
		c.Fatal(err)
	}
	return client
}

// clientOfCopy is a client with the machine's certificate as it is now.
func (c *cluster) clientOfCopy(dir string) kubernetes.Interface {
	c.Helper()
	config, err := kube.Config(join.Kubeconfig(dir))
	if err != nil {
		c.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "pki", "fairway-node-current.pem"))
	if err != nil {
		c.Fatal(err)
	}
	config.TLSClientConfig = rest.TLSClientConfig{CAFile: config.CAFile, CertData: data, KeyData: data}
	client, err := kube.Client(config)
	if err != nil {
		c.Fatal(err)
	}
	return client
}

func (c *cluster) eventually(what string, condition func() bool) {
	c.Helper()
	for late := range wait.Tries(time.Minute) {
		if condition() {
			break
		}
		if late {
			c.Fatalf("%s doesn't come true", what)
		}
	}
}

// TestJoin: a machine joins with a token, is one node and no other, and can be
// put out again.
func TestJoin(t *testing.T) {
	c := start(t)
	token := c.token(time.Now().Add(time.Hour))
	o := c.options("n1", token)
	t.Chdir(filepath.Dir(o.Dir)) // people give directories as seen from where they are
	o.Dir = filepath.Base(o.Dir)
	if err := join.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := join.Join(t.Context(), o); err != nil {
		t.Errorf("joining once more: %v", err)
	}
	node := c.client(o.Dir)
	registered, err := node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node lists Secrets: %v", err)
	}
	registered.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := node.CoreV1().Nodes().UpdateStatus(t.Context(), registered, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if cert := pair(t, o.Dir); time.Until(cert.Leaf.NotAfter).Round(time.Hour) != 30*24*time.Hour {
		t.Errorf("the certificate ends at %s, want in 30 days", cert.Leaf.NotAfter)
	}
	c.refused(c.options("n1", token), "a machine named n1 is a member already, and alive")
	other := c.options("n2", token)
	other.Dir = o.Dir
	c.refused(other, "this machine has joined as n1: `fairway leave` first")

	if err := nodecert.Revoke(t.Context(), c.admin, "n1", time.Now()); err != nil {
		t.Fatal(err)
	}
	c.eventually("that a revoked certificate isn't accepted", func() bool {
		_, err := node.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	})
	if err := c.admin.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// For a minute after a request, another one for the name would be another machine's.
	requests := c.admin.CertificatesV1().CertificateSigningRequests()
	if err := requests.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	// What is in its directory doesn't keep it from joining.
	if err := join.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	c.eventually("that the new certificate is accepted", func() bool {
		_, err := c.clientOfCopy(o.Dir).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}

func pair(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	file := filepath.Join(dir, "pki", "fairway-node-current.pem")
	data, err := os.ReadFile(file) // once: it may be replaced
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(data, data)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// refused expects one line that says why.
func (c *cluster) refused(o join.Options, want string) {
	c.Helper()
	err := join.Join(c.Context(), o)
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		c.Errorf("joining: %v, want one line with %q", err, want)
	}
}

// TestRefusals: each bad input has its line.
func TestRefusals(t *testing.T) {
	c, elsewhere := start(t), start(t)
	good := c.token(time.Time{})
	o := c.options("n1", good)

	wrong := good
	wrong.Secret = "0000000000000000"
	c.refused(c.options("n1", wrong), "join token "+good.ID+" is not known: it is wrong, or was deleted")
	c.refused(c.options("n1", c.token(time.Now().Add(-time.Minute))), "expired at")
	mismatch := good
	mismatch.CAHash = elsewhere.token(time.Time{}).CAHash
	c.refused(c.options("n1", mismatch), "certificate authority isn't the one in the token")
	c.refused(c.options("Under_score", good), `node name "Under_score": can't be a name in DNS`)
	c.refused(c.options(strings.Repeat("a", 64), good), "can't be a name in DNS (it has 64 letters, 63 are the most)")

	skewed := o
	skewed.Now = func() time.Time { return time.Now().Add(-3 * time.Hour) }
	c.refused(skewed, "clock is 3h0m0s behind the server's")
	skewed.Now = func() time.Time { return time.Now().Add(48 * time.Hour) }
	c.refused(skewed, "clock is 48h0m0s ahead of the server's")
	for version, want := range map[string]string{"v1.30.0": "upgrade this machine's fairway", "v1.45.0": "upgrade the server"} {
		old := o
		old.Version = version
		c.refused(old, want)
	}
	garbled := o
	garbled.Token = "abc"
	c.refused(garbled, "--token: must have the form")
	http := o
	http.Server = "http://127.0.0.1:1"
	c.refused(http, "must be a URL such as https://")

	nobody, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close() //nolint:errcheck // of a test
	silent := o
	silent.Server = "https://" + nobody.Addr().String()
	c.refused(silent, "it doesn't answer within 3s")

	if err := join.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	foreign := elsewhere.options("n1", elsewhere.token(time.Time{}))
	foreign.Dir = o.Dir
	c.refused(foreign, "belongs to another cluster")
}

// TestDeletedNode: whose Node is deleted and doesn't come back has no
// certificate any more; whose machine lives and registers again keeps it.
func TestDeletedNode(t *testing.T) {
	c := start(t)
	clients := map[string]kubernetes.Interface{}
	for _, name := range []string{"gone", "living"} {
		o := c.options(name, c.token(time.Time{}))
		if err := join.Join(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		clients[name] = c.client(o.Dir)
		if _, err := clients[name].CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.admin.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := clients["living"].CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "living"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	works := func(name string) bool {
		_, err := clients[name].CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		return err == nil
	}
	c.eventually("that the certificate of a deleted node ends", func() bool { return !works("gone") })
	if !works("living") {
		t.Error("the certificate of a machine that registered again ended too")
	}
}
