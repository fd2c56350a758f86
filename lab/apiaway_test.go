//go:build apiaway

package lab_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/wait"
)

// TestAPIAway: a Gateway answers every one of 500 requests a second, each on a connection
// of its own, while the API server and its controllers stand still, longer than Leases
// hold, and when they go on.
func TestAPIAway(t *testing.T) {
	away := 90 * time.Second
	if text := os.Getenv("FAIRWAY_API_AWAY"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		away = d
	}
	c := config("apiaway")
	c.Mode, c.Gateway, c.GatewayEngine = "nftables", true, os.Getenv("FAIRWAY_TEST_ENGINE")
	c.LoadBalancerRanges = []string{"172.30.200.1-172.30.200.9"}
	up(t, c)
	serveByGateway(t, c.Name)
	ns, err := netns.Open(topology.HostNamespace(c.Name, "client"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close() //nolint:errcheck // only used
	from := &place{ns: ns}
	ask := func() error { return asked(t.Context(), from, "172.30.200.1:80") }
	eventually(t, "the Gateway answers", func() bool { return ask() == nil })

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var failures []string
	var lock sync.Mutex
	var group sync.WaitGroup
	total := 0
	const rate = 500
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		places := make(chan struct{}, rate) // no more at a time
		for range wait.Every(ctx, time.Second/rate) {
			places <- struct{}{}
			group.Go(func() {
				defer func() { <-places }()
				err := ask()
				lock.Lock()
				defer lock.Unlock()
				if total++; err != nil {
					failures = append(failures, time.Now().Format(time.TimeOnly)+": "+err.Error())
				}
			})
		}
		group.Wait()
	}()
	server := serverPID(t, c.Name)
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(away) // for so long the API is away
	if err := syscall.Kill(server, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(away / 2) // in which Leases are renewed, and all that was missed is done
	stop()
	<-ended
	t.Logf("%d requests while the API was away for %s and after it, %d failed", total, away, len(failures))
	if len(failures) > 0 {
		t.Errorf("%d failed:\n%s", len(failures), strings.Join(failures[:min(len(failures), 20)], "\n"))
	}
}

// asked asks once, on a connection of its own.
func asked(ctx context.Context, from *place, address string) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, to string) (net.Conn, error) { return from.dial(ctx, network, to) }}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(q)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s", response.Status)
	}
	return nil
}

// serveByGateway makes a Gateway, and a route to two pods.
func serveByGateway(t *testing.T, name string) {
	t.Helper()
	client, err := lab.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	access, err := kube.Config(lab.Kubeconfig(name))
	if err != nil {
		t.Fatal(err)
	}
	access.ContentType, access.AcceptContentTypes = "application/json", "application/json" // which these kinds have alone
	gateways, err := versioned.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := gateways.GatewayV1().Gateways("default").Create(t.Context(), &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	port := gatewayv1.PortNumber(80)
	if _, err := gateways.GatewayV1().HTTPRoutes("default").Create(t.Context(), &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "web"}}},
			Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
				BackendObjectReference: gatewayv1.BackendObjectReference{Name: "hello", Port: &port},
			}}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// serverPID is the process of a lab's API server.
func serverPID(t *testing.T, name string) int {
	t.Helper()
	dir, err := topology.FindCgroup(name, "server")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
