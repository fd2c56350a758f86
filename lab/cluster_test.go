package lab_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/wait"
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
		if p.sockets, err = cgroupsock.Start(dir); err == nil {
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
// should or waitTimeout ends. kube-proxy calls itself healthy before all its rules are
// there, so the first may fail.
func (c *cluster) works(t *testing.T) {
	t.Helper()
	for late := range wait.Tries(waitTimeout) {
		err := c.try(t)
		if err == nil {
			return
		}
		if late {
			t.Fatal(err)
		}
		c.forgetAttempts(t)
	}
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

// isRefused tells whether a connection was refused at once.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// killAgent ends a node's agent with SIGKILL; the lab starts another one.
func killAgent(t *testing.T, name, node string) {
	t.Helper()
	dir, err := topology.FindCgroup(name, node)
	if err != nil {
		t.Skipf("NO CGROUPS HERE: processes of a lab can't be found: %v", err)
	}
	procs, err := os.ReadFile(filepath.Join(dir, "agent", "cgroup.procs"))
	killed := 0
	for _, text := range strings.Fields(string(procs)) {
		pid, _ := strconv.Atoi(text) // a number
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if err != nil || killed == 0 {
		t.Fatalf("kill the agent of %s: %d processes, %v", node, killed, err)
	}
}

// modes are those that need nothing that this kernel may lack.
var modes = []string{"nftables", "iptables", "ebpf", "userspace"}

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
	for !c.spread(t) { // those that were scheduled when one node was known are all there
		c.replacePods(t)
	}
}

// spread reports whether each node has pods of the Deployment's.
func (c *cluster) spread(t *testing.T) bool {
	t.Helper()
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=hello"})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range pods.Items {
		used[p.Spec.NodeName] = true
	}
	return len(used) == len(c.nodes)
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

// replacePods has the Deployment replace all pods.
func (c *cluster) replacePods(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"at":%q}}}}}`, time.Now())
	if _, err := c.client.AppsV1().Deployments("default").Patch(t.Context(), "hello", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all pods are replaced", func() bool { return c.available(t) })
}

// proxy is a kind of node proxy: a mode of Fairway's agent, or of kube-proxy.
type proxy struct {
	name    string
	mode    string
	fairway bool
	build   string   // Fairway's binary, if it isn't this one
	flags   []string // beside those that all have
}

func fairwayProxy(mode string) proxy {
	return proxy{name: "fairway in " + mode + " mode", mode: mode, fairway: true, build: os.Args[0]}
}

func kubeProxy(mode string) proxy {
	return proxy{name: "kube-proxy in " + mode + " mode", mode: mode}
}

// running is a proxy on all nodes.
type running struct {
	proxy
	commands map[string]*exec.Cmd // by node
	logs     map[string]string
}

// start starts a proxy on all nodes and waits until it says that it has
// programmed them.
func (c *cluster) start(t *testing.T, p proxy) *running {
	t.Helper()
	r := c.launch(t, p)
	for _, node := range c.nodes {
		eventually(t, p.name+" has programmed "+node, func() bool { return c.healthy(t, node) })
	}
	happened(t, "%s is well", p.name)
	return r
}

// launch starts a proxy on all nodes.
func (c *cluster) launch(t *testing.T, p proxy) *running {
	t.Helper()
	r := &running{p, map[string]*exec.Cmd{}, map[string]string{}}
	for _, node := range c.nodes {
		config, err := c.configure(node, p.mode)
		if err != nil {
			t.Fatal(err)
		}
		program := []string{filepath.Join(c.binaries, "kube-proxy")}
		if p.fairway {
			program = []string{p.build, "agent", "--state-dir", c.stateDir(node), "--cgroup", c.cgroup(node)}
		}
		args := append([]string{"lab", "exec", "--name", c.lab, node, "--"}, append(program, p.flags...)...)
		cmd := exec.Command(os.Args[0], append(args, "--config", config, "--hostname-override", node)...)
		r.logs[node] = filepath.Join(t.TempDir(), "log")
		log, err := os.Create(r.logs[node])
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		r.commands[node] = cmd
	}
	t.Cleanup(func() { // unless it has been stopped
		for node, cmd := range r.commands {
			if t.Failed() { // what was stopped is the less of interest
				t.Logf("%s on %s said: %s", p.name, node, tailOf(r.logs[node]))
			}
			_, _ = cmd.Process.Kill(), cmd.Wait() // it ends, one way or the other
		}
	})
	return r
}

// stop ends a proxy as the kubelet would, which leaves what it has programmed.
func (c *cluster) stop(t *testing.T, r *running) {
	t.Helper()
	for node, cmd := range r.commands {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // by the signal, or with an exit code of its own
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(waitTimeout):
			t.Errorf("%s doesn't end at %s", r.name, syscall.SIGTERM)
			_ = cmd.Process.Kill() // the next one needs its ports
			<-ended
		}
		delete(r.commands, node)
	}
	happened(t, "%s has ended", r.name)
}

// happened notes when something did, to be held against what failed.
func happened(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%s %s", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// cleanUp removes what Fairway's modes have left on the nodes, and, unless told
// otherwise, what kube-proxy has.
func (c *cluster) cleanUp(t *testing.T, flags ...string) {
	t.Helper()
	for _, node := range c.nodes {
		args := append([]string{"lab", "exec", "--name", c.lab, node, "--", os.Args[0], "cleanup", "--state-dir", c.stateDir(node), "--cgroup", c.cgroup(node)}, flags...)
		if len(flags) == 0 {
			args = append(args, "--kube-proxy")
		}
		if stdout, stderr, code := fairway(args...); code != 0 {
			t.Errorf("cleanup on %s: %s%s", node, stdout, stderr)
		}
	}
	happened(t, "cleaned up")
}

func tailOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-6000):])
}
