package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/sockets"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// cluster is a lab with no proxies but those that tests start, and what they have
// applied.
type cluster struct {
	lab      string
	binaries string // Kubernetes' own programs; "" where the API server is Fairway's
	nodes    []string
	client   kubernetes.Interface
	places   map[string]*place // node1, a pod on it, and the outside client
	services map[string]*corev1.Service
}

// place is where connections are made from: in the node's cgroup, if it is of a
// node, so that eBPF programs see them.
type place struct {
	ns      *netns.NS
	sockets *sockets.Maker
}

func newCluster(t *testing.T, binaries string) *cluster {
	t.Helper()
	config := config("cluster")
	config.Kubernetes = binaries
	up(t, config)
	client, err := lab.Client(config.Name)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{lab: config.Name, binaries: binaries, nodes: []string{"node1", "node2"}, client: client,
		places: map[string]*place{}, services: map[string]*corev1.Service{}}
	c.apply(t)
	c.open(t, "node1", topology.HostNamespace(c.lab, "node1"))
	c.open(t, "client", topology.HostNamespace(c.lab, "client"))
	c.open(t, "pod", topology.PodNamespace(c.lab, "default.asks"))
	return c
}

func (c *cluster) stateDir(node string) string { return lab.Dir(c.lab) + "/" + node }

func (c *cluster) cgroup(node string) string {
	path, err := topology.Cgroup(c.lab, node)
	if err != nil {
		return ""
	}
	return path
}

func (c *cluster) open(t *testing.T, name, namespace string) {
	t.Helper()
	ns, err := netns.Open(namespace)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{ns: ns}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	dir, err := topology.NodeCgroup(c.lab, ns)
	if err == nil && dir != "" {
		if p.sockets, err = sockets.Start(dir); err == nil {
			t.Cleanup(func() {
				if err := p.sockets.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	c.places[name] = p
}

// apply makes a Deployment of four pods, Services of each sort for them, and a
// pod on node1 to ask from.
func (c *cluster) apply(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	d := hello(4)
	d.Spec.Template.Spec.Containers[0].Ports = append(d.Spec.Template.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 80, Protocol: corev1.ProtocolUDP, Name: "udp"})
	// As those who want no request lost do: the news of a pod's end must have
	// reached the proxies before it ends. The lab's echo waits by itself.
	d.Spec.Strategy = appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(2))}}
	if _, err := c.client.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	asks := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asks"}, Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "asks", Image: "asks"}}}}
	if _, err := c.client.CoreV1().Pods("default").Create(ctx, asks, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range services() {
		made, err := c.client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.services[s.Name] = made
	}
	eventually(t, "all pods run", func() bool {
		pod, err := c.client.CoreV1().Pods("default").Get(ctx, "asks", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning && c.available(t)
	})
}

func (c *cluster) available(t *testing.T) bool {
	d, err := c.client.AppsV1().Deployments("default").Get(t.Context(), "hello", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 4 && s.AvailableReplicas == 4 && s.Replicas == 4
}

// services are one of each sort.
func services() []*corev1.Service {
	make := func(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "hello"}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Port: 80, TargetPort: intstr.FromInt32(80)},
				{Name: "udp", Port: 80, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolUDP},
			},
		}}
		change(&s.Spec)
		return s
	}
	return []*corev1.Service{
		make("web", func(*corev1.ServiceSpec) {}),
		make("local", func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }),
		make("sticky", func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }),
		make("nobody", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "nobody"} }),
	}
}

// dial connects from a place.
func (p *place) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if p.sockets != nil {
		d.Control = p.sockets.Control(p.ns.Name())
	}
	var conn net.Conn
	err := p.ns.Do(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// ask asks who answers at an address, and which client it sees.
func (p *place) ask(network, address string) (pod string, client netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		return "", client, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return question(conn, 10*time.Second)
}

func question(conn net.Conn, wait time.Duration) (pod string, client netip.Addr, err error) {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", client, err
	}
	if _, err := io.WriteString(conn, "who?\n"); err != nil {
		return "", client, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", client, err
	}
	pod, seen, _ := strings.Cut(strings.TrimSpace(line), " ")
	at, err := netip.ParseAddrPort(seen)
	return pod, at.Addr().Unmap(), err
}

// healthy asks a node's proxy for its health.
func (c *cluster) healthy(t *testing.T, node string) bool {
	return c.get(t, node, "127.0.0.1:10256/healthz") == http.StatusOK
}

// get asks an HTTP server of a node, and tells the status; 0 if nobody answers.
func (c *cluster) get(t *testing.T, node, url string) (status int) {
	ns, err := netns.Open(topology.HostNamespace(c.lab, node))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: (&place{ns: ns}).dial, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + url)
	if err != nil {
		return 0
	}
	if err := resp.Body.Close(); err != nil {
		return 0
	}
	return resp.StatusCode
}

// at is an address of a Service: its cluster IP of a family, or its node port
// at node1.
func (c *cluster) at(service, where string, port int) string {
	s := c.services[service]
	switch where {
	case "4":
		return net.JoinHostPort(s.Spec.ClusterIPs[0], "80")
	case "6":
		return net.JoinHostPort(s.Spec.ClusterIPs[1], "80")
	}
	return net.JoinHostPort("172.30.0.11", fmt.Sprint(s.Spec.Ports[port].NodePort))
}

// works checks Services of each sort from everywhere, until they do what they
// should or patience ends.
func (c *cluster) works(t *testing.T) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = c.try(t); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func (c *cluster) try(t *testing.T) error {
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=hello"})
	if err != nil {
		t.Fatal(err)
	}
	var all, local []string
	for _, p := range pods.Items {
		all = append(all, p.Name)
		if p.Spec.NodeName == "node1" {
			local = append(local, p.Name)
		}
	}
	for name, p := range c.places {
		for _, network := range []string{"tcp", "udp"} {
			for _, where := range []string{"4", "6", "node port"} {
				address := c.at("web", where, map[string]int{"tcp": 0, "udp": 1}[network])
				if err := p.meets(network, address, all); err != nil {
					return fmt.Errorf("web from %s: %s %s: %w", name, network, address, err)
				}
			}
		}
		if err := p.sticks(c.at("sticky", "4", 0)); err != nil {
			return fmt.Errorf("sticky from %s: %w", name, err)
		}
		if _, _, err := p.ask("tcp", c.at("nobody", "4", 0)); !isRefused(err) {
			return fmt.Errorf("nobody from %s: want it refused: %w", name, err)
		}
	}
	client := c.places["client"]
	if err := client.meets("tcp", c.at("local", "node port", 0), local); err != nil {
		return fmt.Errorf("local from outside: %w", err)
	}
	return nil
}

// meets asks until all of the pods have answered, and nobody else.
func (p *place) meets(network, address string, pods []string) error {
	seen := map[string]bool{}
	for range 20 * len(pods) {
		pod, _, err := p.ask(network, address)
		if err != nil {
			return err
		}
		if !slices.Contains(pods, pod) {
			return fmt.Errorf("answered by %q, which is none of %v", pod, pods)
		}
		if seen[pod] = true; len(seen) == len(pods) {
			return nil
		}
	}
	return fmt.Errorf("of the pods %v, only %v answered", pods, seen)
}

// sticks asks for a while, and meets the same pod.
func (p *place) sticks(address string) error {
	first, _, err := p.ask("tcp", address)
	for i := 0; i < 10 && err == nil; i++ {
		var pod string
		if pod, _, err = p.ask("tcp", address); err == nil && pod != first {
			return fmt.Errorf("answered by %s, and then by %s", first, pod)
		}
	}
	return err
}

// replacePods has the Deployment replace all pods.
func (c *cluster) replacePods(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"at":%q}}}}}`, time.Now())
	if _, err := c.client.AppsV1().Deployments("default").Patch(t.Context(), "hello", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all pods are replaced", func() bool { return c.available(t) })
}

// busy is connections made without a pause, and some that last.
type busy struct {
	stop   chan struct{}
	ended  sync.WaitGroup
	mu     sync.Mutex
	asked  int
	failed []string
}

// load asks the Service web from everywhere, until it is checked; with flows,
// also over connections that are open from the beginning.
func (c *cluster) load(t *testing.T, flows bool) *busy {
	t.Helper()
	b := &busy{stop: make(chan struct{})}
	for name, p := range c.places {
		for _, where := range []string{"4", "6", "node port"} {
			address := c.at("web", where, 0)
			b.ended.Go(func() {
				b.run(func() error {
					_, _, err := p.ask("tcp", address)
					return wrap(err, "new connection from %s to %s", name, address)
				})
			})
			if !flows {
				continue
			}
			conn, err := p.dial(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			first, _, err := question(conn, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			b.ended.Go(func() {
				b.run(func() error {
					pod, _, err := question(conn, 10*time.Second)
					if err == nil && pod != first {
						err = fmt.Errorf("answered by %s instead of %s", pod, first)
					}
					return wrap(err, "established connection from %s to %s", name, address)
				})
				_ = conn.Close() // its use was checked
			})
		}
	}
	return b
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// run asks until it is told to stop, or one question fails.
func (b *busy) run(ask func() error) {
	for {
		err := ask()
		b.mu.Lock()
		b.asked++
		if err != nil {
			b.failed = append(b.failed, time.Now().Format("15:04:05.000 ")+err.Error())
		}
		b.mu.Unlock()
		select {
		case <-b.stop:
			return
		case <-time.After(5 * time.Millisecond): // or ports run out
		}
		if err != nil && strings.HasPrefix(err.Error(), "established") {
			return
		}
	}
}

// check ends the load; everything must have been answered, unless something may
// be lost for a declared reason.
func (b *busy) check(t *testing.T, during, lost string) {
	t.Helper()
	close(b.stop)
	b.ended.Wait()
	for _, f := range b.failed[:min(len(b.failed), 10)] {
		if lost != "" {
			t.Logf("DECLARED LOSS, %s: %s: %s", lost, during, f)
		} else {
			t.Errorf("%s: %s", during, f)
		}
	}
	t.Logf("%s: %d questions, %d without an answer", during, b.asked, len(b.failed))
}
