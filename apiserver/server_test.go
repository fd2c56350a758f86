package apiserver

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// testConfig serves on a free port of the loopback, with its data in a
// directory of its own.
func testConfig(t testing.TB) Config {
	t.Helper()
	c := DefaultConfig()
	c.DataDir = t.TempDir()
	c.Port = 0
	return c
}

// start starts a server that ends with the test.
func start(t testing.TB, c Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
	})
	return s
}

func client(t testing.TB, s *Server) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// within gives an operation time enough for a loaded machine.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestFreshServer(t *testing.T) {
	s := start(t, testConfig(t))
	c := client(t, s)
	svc, err := c.CoreV1().Services("default").Get(within(t), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if svc.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("default/kubernetes has cluster IP %s, want 10.96.0.1", svc.Spec.ClusterIP)
	}
	slice, err := c.DiscoveryV1().EndpointSlices("default").Get(within(t), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := slice.Endpoints[0].Addresses[0]; got != "127.0.0.1" || int(*slice.Ports[0].Port) != s.config.Port {
		t.Errorf("default/kubernetes points to %s:%d, want 127.0.0.1:%d", got, *slice.Ports[0].Port, s.config.Port)
	}
	if _, err := c.CoreV1().Namespaces().Get(within(t), "kube-system", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(s.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("admin kubeconfig has mode %v, want 0600", info.Mode().Perm())
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	config := testConfig(t)
	config.ServiceCIDRs = append(config.ServiceCIDRs, netip.MustParsePrefix("fd00:96::/112"))
	s, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	dual := corev1.IPFamilyPolicyRequireDualStack
	before, err := client(t, s).CoreV1().Services("default").Create(within(t), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &dual,
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := client(t, start(t, config)).CoreV1().Services("default").Get(within(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != before.ResourceVersion || after.Spec.ClusterIP != before.Spec.ClusterIP || len(after.Spec.ClusterIPs) != 2 {
		t.Errorf("after a restart the Service is %v, was %v", after, before)
	}
}
