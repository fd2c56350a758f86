package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// TestHealthCheckNodePort asks the nodes from outside, as a load balancer does,
// which of them have endpoints: with the answers of kube-proxy, from the API
// object to the HTTP response.
func TestHealthCheckNodePort(t *testing.T) {
	c := config("health")
	c.Mode = "auto"
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	service, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	balancer := newBalancer(t, c.Name, service.Spec.HealthCheckNodePort)
	for _, replicas := range []int32{0, 1, 2, 3, 1, 0} {
		if _, err := client.AppsV1().Deployments("default").Update(t.Context(), hello(replicas), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		onNode := map[string]int{}
		eventually(t, fmt.Sprintf("%d pods are ready, and no other is there", replicas), func() bool {
			onNode = readyOnNode(t, client)
			return onNode["node1"]+onNode["node2"] == int(replicas) && onNode["others"] == 0
		})
		for node, count := range map[string]int{"node1": onNode["node1"], "node2": onNode["node2"]} {
			eventually(t, fmt.Sprintf("%s says that it has %d", node, count), func() bool { return balancer.asks(t, node, count) })
		}
	}

	patch := []byte(`{"spec":{"externalTrafficPolicy":"Cluster"}}`)
	if _, err := client.CoreV1().Services("default").Patch(t.Context(), "hello", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for node := range nodeAddresses {
		eventually(t, node+" has closed the port", func() bool { _, err := balancer.get(node); return err != nil })
	}
}

// readyOnNode counts the ready pods of each node; under "others" those that are
// on their way.
func readyOnNode(t *testing.T, client kubernetes.Interface) map[string]int {
	t.Helper()
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, p := range pods.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready || p.DeletionTimestamp != nil {
			count["others"]++
			continue
		}
		count[p.Spec.NodeName]++
	}
	return count
}

var nodeAddresses = map[string]string{"node1": "172.30.0.11", "node2": "172.30.0.12"}

// balancer is what asks the nodes, from the lab's client.
type balancer struct {
	http.Client
	port int32
}

func newBalancer(t *testing.T, name string, port int32) *balancer {
	t.Helper()
	outside, err := netns.Open(topology.HostNamespace(name, "client"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outside.Close() })
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = outside.Do(func() error {
			conn, err = (&net.Dialer{Timeout: waitTimeout}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	return &balancer{http.Client{Timeout: waitTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, port}
}

func (b *balancer) get(node string) (*http.Response, error) {
	return b.Get("http://" + net.JoinHostPort(nodeAddresses[node], strconv.Itoa(int(b.port))) + "/")
}

// asks tells whether a node says that it has so many endpoints. Whatever the
// number, the parts of the answer have to agree.
func (b *balancer) asks(t *testing.T, node string, want int) bool {
	t.Helper()
	resp, err := b.get(node)
	if err != nil {
		return false // not open yet
	}
	defer resp.Body.Close()
	var said struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	decoder := json.NewDecoder(resp.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&said); err != nil {
		t.Fatalf("%s answers with no JSON of kube-proxy's: %v", node, err)
	}
	status := http.StatusOK
	if said.LocalEndpoints == 0 || !said.ServiceProxyHealthy {
		status = http.StatusServiceUnavailable
	}
	header := resp.Header.Get("X-Load-Balancing-Endpoint-Weight")
	if said.Service.Namespace != "default" || said.Service.Name != "hello" || resp.StatusCode != status ||
		header != strconv.Itoa(said.LocalEndpoints) || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s answers %d with weight %q and %+v", node, resp.StatusCode, header, said)
	}
	return said.LocalEndpoints == want && said.ServiceProxyHealthy
}
