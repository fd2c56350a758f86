//go:build drain

package lab_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// persistent are connections of the lab's client that are kept, with the pod that has
// answered over each.
type persistent struct {
	lab   string
	conns []net.Conn
	pods  []string
	nodes map[string]string // of each pod
}

// balancedHello makes six pods, and a Service with load-balancer addresses, which has stable
// flows or hasn't.
func balancedHello(t *testing.T, name, addresses, stable string) {
	t.Helper()
	balance(t, name, hello(6), addresses, stable)
}

// balance makes the pods of a Deployment, and the Service.
func balance(t *testing.T, name string, pods *appsv1.Deployment, addresses, stable string) {
	t.Helper()
	client, err := lab.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), pods, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hello", Annotations: map[string]string{
			v1beta1.AnnotationLoadBalancerIPs: addresses, compile.AnnotationStableFlows: stable,
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all pods are ready", func() bool {
		d, err := client.AppsV1().Deployments("default").Get(t.Context(), "hello", metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == *pods.Spec.Replicas
	})
}

// connectAll opens connections to each of the addresses, until pods on all nodes have some.
func connectAll(t *testing.T, name string, many int, addresses []string) *persistent {
	t.Helper()
	p := &persistent{lab: name, nodes: map[string]string{}}
	ns, err := netns.Open(topology.HostNamespace(name, "client"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	client, err := lab.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		p.nodes[pod.Name] = pod.Spec.NodeName
	}
	from := &place{ns: ns}
	for _, address := range addresses {
		for range many {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			conn, err := from.dial(ctx, "tcp", net.JoinHostPort(address, "80"))
			cancel()
			if err != nil {
				t.Fatalf("connect to %s: %v", address, err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			pod, _, err := question(conn, waitTimeout)
			if err != nil || p.nodes[pod] == "" {
				t.Fatalf("ask at %s: %q, %v", address, pod, err)
			}
			p.conns, p.pods = append(p.conns, conn), append(p.pods, pod)
		}
	}
	return p
}

// answered asks over all connections at once, and counts those that the same pod answers, by
// that one's node. A connection that another pod answers is a failure.
func (p *persistent) answered(t *testing.T, wait time.Duration) map[string]int {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	same := map[string]int{}
	for i, conn := range p.conns {
		group.Go(func() {
			pod, _, err := question(conn, wait)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && pod == p.pods[i]:
				same[p.nodes[pod]]++
			case err == nil:
				t.Errorf("over the connection to %s, %s answers", p.pods[i], pod)
			}
		})
	}
	group.Wait()
	return same
}

// onNodes counts connections by their pod's node.
func (p *persistent) onNodes() map[string]int {
	count := map[string]int{}
	for _, pod := range p.pods {
		count[p.nodes[pod]]++
	}
	return count
}

// allGoOn expects an answer over every connection.
func (p *persistent) allGoOn(t *testing.T, when string) {
	t.Helper()
	if got, want := fmt.Sprint(p.answered(t, waitTimeout)), fmt.Sprint(p.onNodes()); got != want {
		t.Fatalf("%s: answered by pods on %s, expected %s", when, got, want)
	}
}

// add takes further connections in.
func (p *persistent) add(t *testing.T, more *persistent) {
	t.Helper()
	p.conns, p.pods = append(p.conns, more.conns...), append(p.pods, more.pods...)
}

// end closes all connections.
func (p *persistent) end(t *testing.T) {
	t.Helper()
	for _, conn := range p.conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// counted is a counter of a node's agent.
func counted(t *testing.T, name, node, metric string) int {
	t.Helper()
	out, _, _ := fairway("lab", "exec", "--name", name, node, "--", "curl", "-sS", "-m", "2", "http://127.0.0.1:10249/metrics")
	for line := range strings.Lines(out) {
		if value, found := strings.CutPrefix(line, metric+" "); found {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	return 0
}

// TestStableFlows: connections through a router that spreads them over all nodes go on while
// nodes are drained, come back, and lose their agent; when a node loses its power, those
// whose endpoint is elsewhere do, and no other.
func TestStableFlows(t *testing.T) {
	c := config("stable")
	c.Nodes, c.Mode, c.Router = 3, "ebpf", lab.RouterBird
	c.LoadBalancerRanges = []string{"10.99.0.1-10.99.0.9", "fd00:99::1-fd00:99::9"}
	up(t, c)
	hosts := []string{"10.99.0.1", "fd00:99::1"}
	balancedHello(t, c.Name, strings.Join(hosts, ","), "true")
	ways := func(n int) {
		t.Helper()
		for _, host := range hosts {
			eventually(t, fmt.Sprintf("%d nodes announce %s", n, host), func() bool { return nextHops(t, c.Name, host) == n })
		}
	}
	ways(3)
	p := connectAll(t, c.Name, 60, hosts)
	if len(p.onNodes()) != 3 {
		t.Fatalf("endpoints of %v connections, expected some on each node", p.onNodes())
	}
	drained := connectedBy(t, c.Name, "node1")
	command(t, "drain", "node1", "--wait", "--kubeconfig", lab.Kubeconfig(c.Name)) // for none of them: they go on anyway
	ways(2)
	p.allGoOn(t, "node1 is drained")
	if left := connectedBy(t, c.Name, "node1"); left != drained {
		t.Errorf("node1 got %d connections while it is drained", left-drained)
	}
	strays := counted(t, c.Name, "node2", "fairway_stray_connections_forwarded_total") + counted(t, c.Name, "node3", "fairway_stray_connections_forwarded_total")
	if strays == 0 {
		t.Error("no connection has come in at another node: nothing was tried")
	}
	command(t, "drain", "node1", "--undo", "--kubeconfig", lab.Kubeconfig(c.Name))
	ways(3)
	p.allGoOn(t, "node1 is back")

	killAgent(t, c.Name, "node2")
	p.allGoOn(t, "the agent of node2 was killed")
	ways(3)
	p.allGoOn(t, "node2 has an agent again")

	command(t, "lab", "break", "--name", c.Name, "node", "node3", "--power")
	ways(2)
	want := p.onNodes()
	delete(want, "node3")
	if got := p.answered(t, 10*time.Second); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("node3 has no power: answered by pods on %v, expected %v", got, want)
	}
	for _, node := range []string{"node1", "node2"} {
		if n := counted(t, c.Name, node, "fairway_stray_packets_reset_total"); n != 0 {
			t.Errorf("%s reset %d packets", node, n)
		}
	}
}

// connectedBy counts the connections that a node has chosen an endpoint for.
func connectedBy(t *testing.T, name, node string) int {
	t.Helper()
	out, _, _ := fairway("lab", "exec", "--name", name, node, "--", "curl", "-sS", "-m", "2", "http://127.0.0.1:10249/metrics")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "fairway_service_connections_total{") && strings.Contains(line, `"hello"`) {
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	return 0
}
